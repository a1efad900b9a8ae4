// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/inline_operands.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

// Where an operand is in the request, and what messages call it.
struct Field {
  absl::string_view message, in_message, name;
  std::string path() const { return absl::StrCat(message, ".", in_message); }
};

absl::Status CheckSize(const Field& field, int64_t have, int64_t want, absl::string_view unit) {
  if (have == want) return absl::OkStatus();
  return FieldError(
      {field.path(), absl::StrCat(have, " ", unit), absl::StrCat(want, " ", unit)},
      Reason::kSizeMismatch,
      absl::StrCat(field.name, ": ", have, " ", unit, ", the signature needs ", want));
}

absl::Status CheckMValues(const Signature& signature, const Field& field,
                          std::span<const int32_t> values) {
  const int64_t rows = signature.capacity_rows;
  GroupErrors errors(Reason::kCountsBeyondCapacity);
  const bool counts = signature.m_source == MSource::kCounts;
  // A count is that of its group, an offset but the first its end.
  const auto check = [&](size_t g, size_t at, int32_t least) {
    if (values[at] >= least && values[at] <= rows) return;
    errors.Add([&]() -> FieldViolation {
      return {absl::StrCat(field.path(), "[", at, "]"), absl::StrCat(values[at]),
              absl::StrCat(least, " to the ", counts ? "" : "capacity of ", rows, " rows",
                           counts ? " reserved" : ""),
              static_cast<int64_t>(g)};
    });
  };
  if (counts) {
    for (size_t g = 0; g < values.size(); ++g) check(g, g, 0);
    return errors.status();
  }
  if (values[0] != 0) {
    return FieldError({absl::StrCat(field.path(), "[0]"), absl::StrCat(values[0]), "0"},
                      Reason::kCountsBeyondCapacity,
                      absl::StrCat("m_values: offsets[0]=", values[0], " must be 0"));
  }
  for (size_t g = 0; g + 1 < values.size(); ++g) check(g, g + 1, values[g]);
  return errors.status();
}

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Copies an operand of concatenated groups to where the plan has the groups.
absl::Status WriteGroups(Device& device, const BlockRef& block, std::span<const std::byte> data,
                         const Plan& plan, int64_t GroupOffsets::*at) {
  if (data.empty()) return absl::OkStatus();
  const std::vector<GroupOffsets>& to = plan.layout.groups;
  const std::vector<GroupOffsets>& from = plan.wire.groups;
  if (to.empty() || to.back().*at == from.back().*at) {
    return device.Write(block.allocation, block.offset, data);
  }
  for (size_t g = 0; g < to.size(); ++g) {
    const int64_t begin = from[g].*at;
    const int64_t end = g + 1 < from.size() ? from[g + 1].*at : static_cast<int64_t>(data.size());
    TETRAD_RETURN_IF_ERROR(
        device.Write(block.allocation, block.offset + to[g].*at, data.subspan(begin, end - begin)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInlineOperands(const Plan& plan, const InlineOperands& operands,
                                 int64_t max_inline_bytes, const BlockOperands* blocks) {
  const Signature& signature = plan.signature;
  const OperandLayout& wire = plan.wire;
  const int64_t groups = static_cast<int64_t>(signature.groups.size());
  const bool in_blocks = blocks != nullptr;
  const int64_t a_bytes = in_blocks ? 0 : wire.a_bytes;
  const int64_t a_scale_bytes = in_blocks ? 0 : wire.a_scale_bytes;
  const int64_t row_scales =
      !signature.row_scale || (in_blocks && !blocks->row_scale.block.empty()) ? 0 : wire.rows;
  const int64_t m_values = in_blocks && !blocks->m_values.block.empty() ? 0 : wire.m_values;
  const int64_t total = a_bytes + a_scale_bytes + (in_blocks ? 0 : wire.c_bytes) +
                        4 * (groups + row_scales + m_values);
  const absl::string_view message = in_blocks ? "block_operands" : "inline_operands";
  if (total > max_inline_bytes) {
    return FieldError({std::string(message), absl::StrCat(total, " bytes with the output"),
                       absl::StrCat("at most ", max_inline_bytes, " bytes")},
                      Reason::kMessageTooLarge,
                      absl::StrCat("inline_operands: operands and output are ", total,
                                   " bytes, max_inline_bytes is ", max_inline_bytes));
  }
  const auto size = [](const auto& range) { return static_cast<int64_t>(range.size()); };
  const auto field = [&](const char* name, const char* in_message) {
    return Field{message, in_message, name};
  };
  TETRAD_RETURN_IF_ERROR(
      CheckSize(field("activations", "activations"), size(operands.activations), a_bytes, "bytes"));
  TETRAD_RETURN_IF_ERROR(CheckSize(field("activation_scales", "activation_scales"),
                                   size(operands.activation_scales), a_scale_bytes, "bytes"));
  TETRAD_RETURN_IF_ERROR(
      CheckSize(field("row_scale", in_blocks ? "row_scales_inline.row_scale" : "row_scale"),
                size(operands.row_scale), row_scales, "values"));
  const Field m_field = field("m_values", in_blocks ? "m_values_inline.m" : "m_values");
  TETRAD_RETURN_IF_ERROR(CheckSize(m_field, size(operands.m_values), m_values, "values"));
  if (!operands.alpha.empty()) {
    const Field alpha = field("alpha", "alpha");
    TETRAD_RETURN_IF_ERROR(CheckSize(alpha, size(operands.alpha), groups, "values"));
    GroupErrors errors;
    for (size_t g = 0; g < operands.alpha.size(); ++g) {
      if (std::isfinite(operands.alpha[g])) continue;
      errors.Add([&]() -> FieldViolation {
        return {absl::StrCat(alpha.path(), "[", g, "]"), absl::StrCat(operands.alpha[g]),
                "a finite number", static_cast<int64_t>(g)};
      });
    }
    TETRAD_RETURN_IF_ERROR(errors.status());
  }
  return m_values > 0 ? CheckMValues(signature, m_field, operands.m_values) : absl::OkStatus();
}

absl::Status CopyInlineOperands(StagingLease& staging, const InlineOperands& operands) {
  const Plan& plan = staging.plan();
  const OperandBlocks& to = staging.set().operands;
  Device& device = staging.device();
  const auto write = [&](const BlockRef& block, std::span<const std::byte> data) {
    return data.empty() ? absl::OkStatus() : device.Write(block.allocation, block.offset, data);
  };
  TETRAD_RETURN_IF_ERROR(staging.WriteAlpha(operands.alpha));
  TETRAD_RETURN_IF_ERROR(write(to.row_scale, std::as_bytes(operands.row_scale)));
  TETRAD_RETURN_IF_ERROR(write(to.m_values, std::as_bytes(operands.m_values)));
  if (staging.set().form == StagingForm::kBlocks) return absl::OkStatus();
  TETRAD_RETURN_IF_ERROR(
      WriteGroups(device, to.a, Bytes(operands.activations), plan, &GroupOffsets::a));
  TETRAD_RETURN_IF_ERROR(WriteGroups(device, to.a_scales, Bytes(operands.activation_scales), plan,
                                     &GroupOffsets::a_scales));
  // An earlier request's output must not show in gaps or rows that are not live.
  if (plan.layout.c_has_gaps) return device.Clear(to.c.allocation, to.c.offset, to.c.bytes);
  return absl::OkStatus();
}

absl::Status CopyInlineOutput(const StagingLease& staging, std::span<std::byte> out) {
  const Plan& plan = staging.plan();
  const BlockRef& c = staging.set().operands.c;
  const std::vector<GroupOffsets>& from = plan.layout.groups;
  const std::vector<GroupOffsets>& to = plan.wire.groups;
  if (from.empty() || from.back().c == to.back().c) {
    return staging.device().Read(c.allocation, c.offset, out);
  }
  for (size_t g = 0; g < to.size(); ++g) {
    const int64_t begin = to[g].c;
    const int64_t end = g + 1 < to.size() ? to[g + 1].c : plan.wire.c_bytes;
    TETRAD_RETURN_IF_ERROR(
        staging.device().Read(c.allocation, c.offset + from[g].c, out.subspan(begin, end - begin)));
  }
  return absl::OkStatus();
}

}  // namespace tetrad
