// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests whose operands lie in the client's blocks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"

#include "engine/client_blocks.h"
#include "engine/device.h"
#include "engine/plan.h"

namespace tetrad {

// Laid out as plan.layout says: like inline operands, but in the separate form
// every group starts at a multiple of kStagingAlignment. Offsets are multiples
// of 16. The output is left in its block: gaps and rows that are not live keep
// what was in them.
struct BlockOperands {
  BlockRange activations;
  BlockRange activation_scales;  // empty name: the signature has none
  BlockRange output;
  BlockRange row_scale;  // empty name: inline, or none
  BlockRange m_values;   // empty name: inline, or none
};

// Keeps the memory of the blocks a request names.
using BlockHolds = std::array<std::shared_ptr<const ClientBlock>, 5>;

// INVALID_ARGUMENT names operand, value and limit: a range that is not inside
// its block, too short, misaligned, or overlaps the output; one that the
// signature has no use for, or that is missing. The rest as ClientBlocks::Find.
absl::Status ResolveBlocks(const Plan& plan, std::string_view client, const BlockOperands& operands,
                           ClientBlocks& blocks, BlockHolds& holds, OperandBlocks& resolved);

}  // namespace tetrad
