// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes as a request. The first says which message the rest is. What is refused
// is INVALID_ARGUMENT; what is accepted holds no enumeration value that the schema does not know
// and, as far as the engine takes a value, is the same once it was written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include "tetrad/v1/gemm.pb.h"
#include "tetrad/v1/memory.pb.h"
#include "tetrad/v1/weights.pb.h"

#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/status.h"

namespace tetrad {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kMaxGroups = 4096;

void CheckRefusal(const absl::Status& status) {
  TETRAD_CHECK(absl::IsInvalidArgument(status));
  TETRAD_CHECK(!status.message().empty());
  // As the client gets it.
  TETRAD_CHECK(ToGrpc(status).error_message().size() <= kErrorTextLimit + 64);
}

// Of `message` and all messages in it.
bool EnumerationsAreKnown(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  const auto& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->enum_type() != nullptr) {
      const int number = reflection.GetEnumValue(message, field);
      if (field->enum_type()->FindValueByNumber(number) == nullptr) return false;
    } else if (field->message_type() != nullptr && !field->is_repeated()) {
      if (!EnumerationsAreKnown(reflection.GetMessage(message, field))) return false;
    }
  }
  return true;
}

// The way back, which no daemon needs.
v1::Signature Written(const SignatureRequest& request) {
  v1::Signature out;
  out.set_weights(request.weights);
  // Neither of these two numberings has a hole, and the schema's begins with "unspecified".
  out.set_activation_type(
      static_cast<v1::ActivationType>(1 + static_cast<int>(request.types.a_type)));
  out.set_output_type(static_cast<v1::OutputType>(1 + static_cast<int>(request.types.c_type)));
  out.set_activation_scale_layout(request.types.a_scale_layout == ScaleLayout::kBlocked
                                      ? v1::SCALE_LAYOUT_BLOCKED
                                      : v1::SCALE_LAYOUT_LINEAR);
  out.set_output_layout(request.types.c_layout == OutputLayout::kColumnMajor
                            ? v1::OUTPUT_LAYOUT_COLUMN_MAJOR
                            : v1::OUTPUT_LAYOUT_ROW_MAJOR);
  out.set_group_form(request.form == GroupForm::kStacked ? v1::GROUP_FORM_STACKED
                                                         : v1::GROUP_FORM_SEPARATE);
  out.set_output_stride(request.c_stride);
  out.set_row_scale(request.row_scale);
  if (request.m_source == MSource::kHost) {
    out.mutable_exact()->mutable_m()->Add(request.m.begin(), request.m.end());
  } else {
    out.mutable_capacity()->set_m_source(
        request.m_source == MSource::kOffsets ? v1::M_SOURCE_OFFSETS : v1::M_SOURCE_COUNTS);
    out.mutable_capacity()->set_rows(request.capacity_rows);
  }
  return out;
}

void CheckSignature(const SignatureRequest& request) {
  const absl::StatusOr<SignatureRequest> again = FromProto(Written(request));
  TETRAD_CHECK(again.ok());
  TETRAD_CHECK(again->weights == request.weights && again->types == request.types);
  TETRAD_CHECK(again->form == request.form && again->m_source == request.m_source);
  TETRAD_CHECK(again->m == request.m && again->capacity_rows == request.capacity_rows);
  TETRAD_CHECK(again->c_stride == request.c_stride && again->row_scale == request.row_scale);
}

void Try(const v1::PrepareRequest& message) {
  const auto request = FromProto(message.signature());
  if (!request.ok()) return CheckRefusal(request.status());
  TETRAD_CHECK(EnumerationsAreKnown(message));
  CheckSignature(*request);
}

void Try(const v1::ExecuteRequest& message) {
  DecodedExecute decoded;
  if (const absl::Status status = Decode(message, decoded); !status.ok()) {
    return CheckRefusal(status);
  }
  TETRAD_CHECK(EnumerationsAreKnown(message));
  TETRAD_CHECK(decoded.request.plan.empty() == message.has_signature());
  TETRAD_CHECK((decoded.request.signature != nullptr) == message.has_signature());
  TETRAD_CHECK((decoded.request.blocks != nullptr) == message.has_block_operands());
  if (decoded.signature.has_value()) CheckSignature(*decoded.signature);
  // Spans lie in the message.
  const InlineOperands& operands = decoded.request.operands;
  const auto values = message.has_block_operands()
                          ? message.block_operands().m_values_inline().m_size()
                          : message.inline_operands().m_values_size();
  TETRAD_CHECK(operands.m_values.size() == static_cast<size_t>(values));
  int64_t sum = 0;
  for (const int32_t value : operands.m_values) sum += value;
  for (const float value : operands.alpha) sum += value == 0 ? 1 : 0;
  for (const float value : operands.row_scale) sum += value == 0 ? 1 : 0;
  for (const char value : operands.activations) sum += value;
  for (const char value : operands.activation_scales) sum += value;
  [[maybe_unused]] static volatile int64_t sink;
  sink = sum;
}

void Try(const v1::ExecuteStreamRequest& message) {
  if (message.has_execute()) Try(message.execute());
}

void Try(const v1::SubmitRequest& message) { Try(message.execute()); }

void Try(const v1::UploadRequest& message) {
  if (message.has_header()) {
    const auto spec = FromProto(message.header(), kMaxGroups);
    if (!spec.ok()) return CheckRefusal(spec.status());
    TETRAD_CHECK(EnumerationsAreKnown(message));
    TETRAD_CHECK(ValidateWeightsSpec(*spec).ok());
    TETRAD_CHECK(spec->name == message.header().name());
    const int count = message.header().group_count();
    TETRAD_CHECK(spec->groups.size() ==
                 static_cast<size_t>(count != 0 ? count : message.header().groups_size()));
  } else if (message.has_chunk()) {
    const auto operand = FromProto(message.chunk().operand());
    if (!operand.ok()) return CheckRefusal(operand.status());
    TETRAD_CHECK(EnumerationsAreKnown(message));
  }
}

void Try(const v1::LoadRequest& message) {
  const auto dialect = FromProto(message.dialect());
  if (!dialect.ok()) return CheckRefusal(dialect.status());
  TETRAD_CHECK(EnumerationsAreKnown(message));
}

template <typename M>
void Parse(std::string_view bytes) {
  M message;
  // What does not parse the RPC library refuses.
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) Try(message);
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tetrad;  // NOLINT(google-build-using-namespace)
  // It would write a line for each text that is not UTF-8.
  static const bool silent = (google::protobuf::SetLogHandler(nullptr), true);
  static_cast<void>(silent);
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr void (*kParse[])(std::string_view) = {
      Parse<v1::PrepareRequest>,       Parse<v1::ExecuteRequest>, Parse<v1::UploadRequest>,
      Parse<v1::ExecuteStreamRequest>, Parse<v1::LoadRequest>,    Parse<v1::SubmitRequest>};
  kParse[data[0] % std::size(kParse)](bytes);
  return 0;
}
