// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/codec.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/request_id.h"
#include "server/status.h"

namespace tetrad {
namespace {

// Names are at most 128 bytes; `@` and a version may follow.
constexpr size_t kMaxReference = 128 + 1 + 19;

// The message is the field and `parts`.
template <typename... Parts>
absl::Status Invalid(Reason reason, std::string_view field, std::string value, std::string limit,
                     const Parts&... parts) {
  return FieldError({std::string(field), std::move(value), std::move(limit)}, reason,
                    absl::StrCat(std::string(field), ": ", parts...));
}
absl::Status Missing(std::string_view field, absl::string_view what = "must be set") {
  return Invalid(Reason::kFieldMissing, field, "", "", what);
}

// One row per value the wire may hold; a value without a row is refused.
template <typename Wire, typename Value>
struct Row {
  Wire wire;
  Value value;
};

template <typename Wire, typename Value, size_t kRows>
absl::StatusOr<Value> Translate(std::string_view field, Wire wire,
                                const Row<Wire, Value> (&rows)[kRows]) {
  for (const Row<Wire, Value>& row : rows) {
    if (row.wire == wire) return row.value;
  }
  // A newer client's value has a meaning that this daemon cannot guess, so no default stands in.
  const int number = static_cast<int>(wire);
  if (number == 0) return Missing(field);
  return Invalid(Reason::kUnknownEnumValue, field, absl::StrCat(number), "a value of the schema",
                 "unknown value ", number);
}

absl::StatusOr<ActivationType> Convert(v1::ActivationType type) {
  static constexpr Row<v1::ActivationType, ActivationType> kRows[] = {
      {v1::ACTIVATION_TYPE_NVFP4, ActivationType::kNvfp4},
      {v1::ACTIVATION_TYPE_FP16, ActivationType::kFp16},
      {v1::ACTIVATION_TYPE_BF16, ActivationType::kBf16}};
  return Translate("signature.activation_type", type, kRows);
}

absl::StatusOr<OutputType> Convert(v1::OutputType type) {
  static constexpr Row<v1::OutputType, OutputType> kRows[] = {
      {v1::OUTPUT_TYPE_FP16, OutputType::kFp16},
      {v1::OUTPUT_TYPE_BF16, OutputType::kBf16},
      {v1::OUTPUT_TYPE_FP32, OutputType::kFp32}};
  return Translate("signature.output_type", type, kRows);
}

absl::StatusOr<ScaleLayout> Convert(std::string_view field, v1::ScaleLayout layout) {
  static constexpr Row<v1::ScaleLayout, ScaleLayout> kRows[] = {
      {v1::SCALE_LAYOUT_UNSPECIFIED, ScaleLayout::kLinear},
      {v1::SCALE_LAYOUT_LINEAR, ScaleLayout::kLinear},
      {v1::SCALE_LAYOUT_BLOCKED, ScaleLayout::kBlocked}};
  return Translate(field, layout, kRows);
}

absl::StatusOr<OutputLayout> Convert(v1::OutputLayout layout) {
  static constexpr Row<v1::OutputLayout, OutputLayout> kRows[] = {
      {v1::OUTPUT_LAYOUT_UNSPECIFIED, OutputLayout::kRowMajor},
      {v1::OUTPUT_LAYOUT_ROW_MAJOR, OutputLayout::kRowMajor},
      {v1::OUTPUT_LAYOUT_COLUMN_MAJOR, OutputLayout::kColumnMajor}};
  return Translate("signature.output_layout", layout, kRows);
}

absl::StatusOr<GroupForm> Convert(v1::GroupForm form) {
  static constexpr Row<v1::GroupForm, GroupForm> kRows[] = {
      {v1::GROUP_FORM_UNSPECIFIED, GroupForm::kSeparate},
      {v1::GROUP_FORM_SEPARATE, GroupForm::kSeparate},
      {v1::GROUP_FORM_STACKED, GroupForm::kStacked}};
  return Translate("signature.group_form", form, kRows);
}

absl::StatusOr<MSource> Convert(v1::MSource source) {
  static constexpr Row<v1::MSource, MSource> kRows[] = {{v1::M_SOURCE_OFFSETS, MSource::kOffsets},
                                                        {v1::M_SOURCE_COUNTS, MSource::kCounts}};
  return Translate("signature.capacity.m_source", source, kRows);
}

absl::StatusOr<Epilogue> Convert(v1::Epilogue epilogue) {
  static constexpr Row<v1::Epilogue, Epilogue> kRows[] = {{v1::EPILOGUE_NONE, Epilogue::kNone}};
  return Translate("signature.epilogue", epilogue, kRows);
}

// A range that must be there. Whether it fits block and plan is the engine's to say.
absl::Status Take(std::string_view field, bool present, const v1::BlockRange& range,
                  BlockRange& out) {
  if (!present) return Missing(field);
  TETRAD_RETURN_IF_ERROR(
      ValidateReference(absl::StrCat(std::string(field), ".block"), range.block()));
  out = {.block = range.block(), .offset = range.offset(), .bytes = range.bytes()};
  return absl::OkStatus();
}

absl::Status Take(const v1::BlockOperands& operands, InlineOperands& small, BlockOperands& out) {
  TETRAD_RETURN_IF_ERROR(Take("block_operands.activations", operands.has_activations(),
                              operands.activations(), out.activations));
  TETRAD_RETURN_IF_ERROR(
      Take("block_operands.output", operands.has_output(), operands.output(), out.output));
  if (operands.has_activation_scales()) {
    TETRAD_RETURN_IF_ERROR(Take("block_operands.activation_scales", true,
                                operands.activation_scales(), out.activation_scales));
  }
  if (operands.has_row_scale_block()) {
    TETRAD_RETURN_IF_ERROR(
        Take("block_operands.row_scale_block", true, operands.row_scale_block(), out.row_scale));
  }
  if (operands.has_m_values_block()) {
    TETRAD_RETURN_IF_ERROR(
        Take("block_operands.m_values_block", true, operands.m_values_block(), out.m_values));
  }
  const auto& row_scale = operands.row_scales_inline().row_scale();
  const auto& m_values = operands.m_values_inline().m();
  small.alpha = {operands.alpha().data(), static_cast<size_t>(operands.alpha_size())};
  small.row_scale = {row_scale.data(), static_cast<size_t>(row_scale.size())};
  small.m_values = {m_values.data(), static_cast<size_t>(m_values.size())};
  return absl::OkStatus();
}

double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

template <typename T>
bool AllEqual(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

absl::Status ValidateReference(std::string_view field, std::string_view value) {
  if (value.empty()) return Missing(field);
  if (value.size() > kMaxReference) {
    return Invalid(Reason::kFieldMalformed, field, ErrorText(value, 64),
                   absl::StrCat("at most ", kMaxReference, " bytes"), "'", ErrorText(value, 64),
                   "' has ", value.size(), " bytes, limit ", kMaxReference);
  }
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("._/@-").find(c) != std::string_view::npos;
  };
  if (const auto bad = std::ranges::find_if_not(value, allowed); bad != value.end()) {
    return Invalid(Reason::kFieldMalformed, field, ErrorText(value, 64),
                   "characters in [A-Za-z0-9._/@-]", "'", ErrorText(value, 2 * kMaxReference),
                   "' has a character at byte ", bad - value.begin(),
                   " that is not in [A-Za-z0-9._/@-]");
  }
  return absl::OkStatus();
}

absl::Status ValidateKey(std::string_view field, std::string_view value) {
  if (IsRequestId(value)) return absl::OkStatus();
  return FieldError({.field = std::string(field),
                     .value = absl::StrCat("'", ErrorText(value, 64), "'"),
                     .limit = "1 to 128 characters of A-Z a-z 0-9 . _ : / + = -"},
                    Reason::kFieldMalformed);
}

absl::StatusOr<SignatureRequest> FromProto(const v1::Signature& signature) {
  SignatureRequest request;
  TETRAD_RETURN_IF_ERROR(ValidateReference("signature.weights", signature.weights()));
  request.weights = signature.weights();
  TETRAD_ASSIGN_OR_RETURN(request.types.a_type, Convert(signature.activation_type()));
  TETRAD_ASSIGN_OR_RETURN(request.types.c_type, Convert(signature.output_type()));
  TETRAD_ASSIGN_OR_RETURN(
      request.types.a_scale_layout,
      Convert("signature.activation_scale_layout", signature.activation_scale_layout()));
  TETRAD_ASSIGN_OR_RETURN(request.types.c_layout, Convert(signature.output_layout()));
  TETRAD_ASSIGN_OR_RETURN(request.types.epilogue, Convert(signature.epilogue()));
  TETRAD_ASSIGN_OR_RETURN(request.form, Convert(signature.group_form()));
  request.c_stride = signature.output_stride();
  request.row_scale = signature.row_scale();
  switch (signature.rows_case()) {
    case v1::Signature::kExact:
      request.m.assign(signature.exact().m().begin(), signature.exact().m().end());
      return request;
    case v1::Signature::kCapacity: {
      TETRAD_ASSIGN_OR_RETURN(request.m_source, Convert(signature.capacity().m_source()));
      request.capacity_rows = signature.capacity().rows();
      return request;
    }
    case v1::Signature::ROWS_NOT_SET:
      break;
  }
  return Missing("signature.rows", "one of `exact` and `capacity` must be set");
}

InlineOperands FromProto(const v1::InlineOperands& operands) {
  return {
      .activations = operands.activations(),
      .activation_scales = operands.activation_scales(),
      .alpha = {operands.alpha().data(), static_cast<size_t>(operands.alpha_size())},
      .row_scale = {operands.row_scale().data(), static_cast<size_t>(operands.row_scale_size())},
      .m_values = {operands.m_values().data(), static_cast<size_t>(operands.m_values_size())}};
}

absl::StatusOr<Priority> FromProto(v1::Priority priority) {
  static constexpr Row<v1::Priority, Priority> kRows[] = {
      {v1::PRIORITY_UNSPECIFIED, Priority::kNormal},
      {v1::PRIORITY_HIGH, Priority::kHigh},
      {v1::PRIORITY_NORMAL, Priority::kNormal},
      {v1::PRIORITY_LOW, Priority::kLow}};
  return Translate("priority", priority, kRows);
}

absl::Status Decode(const v1::ExecuteRequest& message, DecodedExecute& out) {
  ExecuteRequest& request = out.request;
  switch (message.plan_or_signature_case()) {
    case v1::ExecuteRequest::kPlan:
      TETRAD_RETURN_IF_ERROR(ValidateReference("plan", message.plan()));
      request.plan = message.plan();
      break;
    case v1::ExecuteRequest::kSignature: {
      TETRAD_ASSIGN_OR_RETURN(out.signature, FromProto(message.signature()));
      request.signature = &*out.signature;
      break;
    }
    case v1::ExecuteRequest::PLAN_OR_SIGNATURE_NOT_SET:
      return FieldError({"plan_or_signature"}, Reason::kFieldMissing,
                        "one of `plan` and `signature` must be set");
  }
  if (!message.weights().empty()) {
    TETRAD_RETURN_IF_ERROR(ValidateReference("weights", message.weights()));
    request.weights = message.weights();
  }
  TETRAD_ASSIGN_OR_RETURN(request.priority, FromProto(message.priority()));
  switch (message.operands_case()) {
    case v1::ExecuteRequest::kInlineOperands:
      request.operands = FromProto(message.inline_operands());
      return absl::OkStatus();
    case v1::ExecuteRequest::kBlockOperands:
      request.blocks = &out.blocks.emplace();
      return Take(message.block_operands(), request.operands, *out.blocks);
    case v1::ExecuteRequest::OPERANDS_NOT_SET:
      break;
  }
  return Missing("operands", "one of `inline_operands` and `block_operands` must be set");
}

absl::StatusOr<WeightsSpec> FromProto(const v1::UploadHeader& header, int64_t max_groups) {
  WeightsSpec spec;
  spec.name = header.name();
  spec.source = "upload";
  TETRAD_ASSIGN_OR_RETURN(spec.scale_layout, Convert("header.scale_layout", header.scale_layout()));
  for (const v1::GroupDims& dims : header.groups()) spec.groups.push_back({dims.n(), dims.k()});
  if (header.group_count() != 0) {
    if (header.groups_size() != 1) {
      return Invalid(Reason::kFieldConflict, "header.group_count",
                     absl::StrCat(header.group_count()), "one entry in header.groups",
                     header.group_count(), " needs exactly one entry in `groups`, which has ",
                     header.groups_size());
    }
    // Checked before the list is filled: it is the client's number.
    if (header.group_count() < 0 || header.group_count() > max_groups) {
      return Invalid(Reason::kFieldOutOfRange, "header.group_count",
                     absl::StrCat(header.group_count()), absl::StrCat("1 to ", max_groups),
                     header.group_count(), " is not in [1, ", max_groups, "]");
    }
    spec.groups.resize(static_cast<size_t>(header.group_count()), spec.groups.front());
  }
  spec.alpha.assign(header.alpha().begin(), header.alpha().end());
  TETRAD_RETURN_IF_ERROR(InMessage("header", ValidateWeightsSpec(spec)));
  return spec;
}

absl::StatusOr<WeightsOperand> FromProto(v1::WeightsOperand operand) {
  static constexpr Row<v1::WeightsOperand, WeightsOperand> kRows[] = {
      {v1::WEIGHTS_OPERAND_CODES, WeightsOperand::kCodes},
      {v1::WEIGHTS_OPERAND_SCALES, WeightsOperand::kScales}};
  return Translate("chunk.operand", operand, kRows);
}

absl::StatusOr<Dialect> FromProto(v1::CheckpointDialect dialect) {
  static constexpr Row<v1::CheckpointDialect, Dialect> kRows[] = {
      {v1::CHECKPOINT_DIALECT_UNSPECIFIED, Dialect::kAuto},
      {v1::CHECKPOINT_DIALECT_MODELOPT, Dialect::kModelOpt},
      {v1::CHECKPOINT_DIALECT_COMPRESSED_TENSORS, Dialect::kCompressedTensors}};
  return Translate("dialect", dialect, kRows);
}

void ToProto(const PreparedPlan& prepared, v1::PrepareResponse& out) {
  const Plan& plan = *prepared.plan;
  out.set_plan(prepared.handle);
  out.set_weights(prepared.weights);
  out.set_cached(prepared.cached);
  v1::PlanInfo& info = *out.mutable_info();
  info.set_kernel(plan.kernel);
  info.set_device(plan.signature.device);
  info.set_groups(static_cast<int32_t>(plan.signature.groups.size()));
  if (!plan.signature.device_m()) {
    info.set_tiles(plan.tiles());
    info.set_ctas(plan.ctas());
    info.set_balance(plan.balance());
  }
  v1::Floor& floor = *info.mutable_floor();
  floor.set_flops(plan.floor.flops);
  floor.set_bytes(plan.floor.bytes);
  floor.set_compute_us(plan.floor.compute_us);
  floor.set_memory_us(plan.floor.memory_us);
  floor.set_floor_us(plan.floor.floor_us());
  info.set_activation_bytes(plan.wire.a_bytes);
  info.set_activation_scale_bytes(plan.wire.a_scale_bytes);
  info.set_output_bytes(plan.wire.c_bytes);
  info.set_rows(plan.wire.rows);
  info.set_explanation(plan.explanation);
  info.set_activation_block_bytes(plan.layout.a_bytes);
  info.set_activation_scale_block_bytes(plan.layout.a_scale_bytes);
  info.set_output_block_bytes(plan.layout.c_bytes);
}

void ToProto(const Timings& timings, double share, v1::Timings& out) {
  out.set_queued_us(Microseconds(timings.queued_ns));
  out.set_launch_us(Microseconds(timings.launch_ns));
  out.set_device_us(Microseconds(timings.device_ns));
  out.set_total_us(Microseconds(timings.total_ns));
  out.set_share(share);
}

void ToProto(const WeightsInfo& info, v1::WeightsInfo& out) {
  const WeightsSpec& spec = info.spec;
  out.set_name(spec.name);
  out.set_version(info.version);
  out.set_sealed(info.sealed);
  out.set_group_count(static_cast<int32_t>(spec.groups.size()));
  const size_t listed =
      AllEqual(spec.groups) ? std::min<size_t>(1, spec.groups.size()) : spec.groups.size();
  for (size_t g = 0; g < listed; ++g) {
    v1::GroupDims& dims = *out.add_groups();
    dims.set_n(spec.groups[g].n);
    dims.set_k(spec.groups[g].k);
  }
  out.set_scale_layout(spec.scale_layout == ScaleLayout::kBlocked ? v1::SCALE_LAYOUT_BLOCKED
                                                                  : v1::SCALE_LAYOUT_LINEAR);
  out.set_bytes(info.bytes);
  out.set_source(spec.source);
  if (std::ranges::any_of(spec.alpha, [](float alpha) { return alpha != 1.0f; })) {
    out.mutable_alpha()->Assign(spec.alpha.begin(), spec.alpha.end());
  }
  out.mutable_input_scale()->Assign(spec.input_scale.begin(), spec.input_scale.end());
}

void ToProto(const BlockInfo& info, v1::BlockInfo& out) {
  out.set_block(info.block);
  out.set_lease(info.lease);
  out.set_bytes(info.bytes);
}

}  // namespace tetrad
