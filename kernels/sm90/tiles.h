// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts groups into tiles of the Hopper GEMM and deals them to CTAs: which instance,
// which of its widths for which rows, which tile on which multiprocessor. A pure
// function of shapes: no device, the same lists for the same input.
//
// What a tile takes comes from a model of the H200 (TileCycles). Each group's rows are
// covered by widths, at first in the cheapest way; tiles are dealt longest first, each
// to the CTA with the least so far; then other covers are tried, group by group, and
// kept when they shorten the longest CTA. That work is bounded. The instance whose
// longest CTA is the shortest is chosen; of equal ones the first in kInstances.
//
// Lists are bounded too: a CTA gets no tile beyond 4 * tiles / CTAs + 63, so that there are
// at most 4 * tiles + 64 * CTAs entries, however unlike the groups are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::sm90 {

// A group and where its operands lie. Its index is that of its alpha.
struct TileGroup {
  int32_t m = 0;  // 0: the group has no tiles
  int32_t n = 0;
  int32_t k = 0;
  int32_t token = 0;      // row of its first token in the tensor map
  int32_t scale_row = 0;  // of its first row in row_scale
  uint32_t block = 0;     // first of its packed weights
  int64_t c = 0;          // byte of its element (0, 0)
  int64_t c_stride = 0;   // elements
};

struct TileLists {
  const Instance* instance = nullptr;
  int32_t ctas = 0;                // none of them idle; 0: there is nothing to compute
  int32_t tiles_per_cta = 0;       // entries of a list with its end
  std::vector<TileEntry> entries;  // list i begins at i * tiles_per_cta
  int64_t longest_cycles = 0;      // of a CTA, as predicted; entry and exit of a launch apart
  int64_t mean_cycles = 0;         // over all multiprocessors, rounded up
};

// Cycles of a multiprocessor for one tile, all of its strips.
int64_t TileCycles(const Instance& instance, int32_t width, int32_t steps);

// `multiprocessors`: 1 to 65535. Of `types` only those of C matter, and only to where a tile
// lies in it. The lists refer to `instance`.
TileLists CutTiles(const Instance& instance, const ProblemTypes& types,
                   std::span<const TileGroup> groups, int32_t multiprocessors);
TileLists ChooseTiles(const ProblemTypes& types, std::span<const TileGroup> groups,
                      int32_t multiprocessors);

}  // namespace tetrad::sm90
