// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Inline requests: their operands checked against a plan, copied into a staging
// set, and the output copied out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

#include "engine/block_operands.h"
#include "engine/staging.h"

namespace tetrad {

// Operands of one request, in the layouts of its signature.
struct InlineOperands {
  std::string_view activations;
  std::string_view activation_scales;
  std::span<const float> alpha;      // per group, finite; empty: 1
  std::span<const float> row_scale;  // rows of the stack, or empty
  std::span<const int32_t> m_values;
};

// INVALID_ARGUMENT names the operand (and group), its size or value, and what
// the plan wants. `max_inline_bytes` bounds operands and output together. With
// `blocks` only what they do not name is to be sent.
absl::Status CheckInlineOperands(const Plan& plan, const InlineOperands& operands,
                                 int64_t max_inline_bytes, const BlockOperands* blocks = nullptr);

// `operands` were checked. Clears an inline output where a launch may leave
// some of it unwritten.
absl::Status CopyInlineOperands(StagingLease& staging, const InlineOperands& operands);

// `out` has plan.wire.c_bytes.
absl::Status CopyInlineOutput(const StagingLease& staging, std::span<std::byte> out);

}  // namespace tetrad
