// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// HopperSchedule: how the Hopper kernel (kernels/sm90) computes a signature whose weights are
// packed: which instance, whose tiles, and whether activations are prepared first. A pure
// function of signature, layout and number of multiprocessors; no device, no toolkit.
//
// The kernel reads tokens, 16 bits a number, as the rows of one matrix. Activations are
// that as they lie if they are 16-bit, all groups have the same K and each begins at a multiple of
// a row (any stack; the separate form where K is a multiple of 64). All others are prepared:
// expanded or copied into scratch by a kernel before (prepare.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/signature.h"
#include "kernels/sm90/prepare.h"
#include "kernels/sm90/tiles.h"

namespace tetrad {

struct HopperSchedule {
  sm90::TileLists tiles;  // with device-side M the instance alone
  // Of the matrix of tokens. Rows of groups lie where TileEntry::token says.
  int64_t rows = 0;
  int32_t pitch = 0;  // numbers from row to row
  bool prepared = false;
  std::vector<sm90::PrepareGroup> prepare;  // host M; groups that follow each other are one

  // Device-side M.
  std::vector<uint32_t> covers;
  int32_t live_ctas = 0;

  int32_t tiles_per_cta = 0;  // entries of a CTA's list

  // Device memory of a binding beside its operands.
  int64_t token_bytes() const { return prepared ? rows * pitch * 2 : 0; }
  int64_t list_bytes() const {
    return int64_t{live_ctas} * tiles_per_cta * static_cast<int64_t>(sizeof(sm90::TileEntry));
  }
  int64_t host_bytes() const;
  // With host M.
  int64_t tile_count() const;
  double balance() const;  // longest CTA over the mean of all multiprocessors; 1 without tiles
};

// The signature has as few tiles as BuildPlan() allows, so that rows are counted in 32 bits.
// INVALID_ARGUMENT where a capacity may need more tiles than a CTA can list.
// `instance`: to be used whatever suits best; null: the best.
absl::StatusOr<HopperSchedule> LayOutHopper(const Signature& signature, const OperandLayout& layout,
                                            int32_t multiprocessors,
                                            const sm90::Instance* instance = nullptr);

// Why it is as it is, for `explanation` of the plan.
std::string Explain(const HopperSchedule& schedule, const Signature& signature,
                    int32_t multiprocessors);

}  // namespace tetrad
