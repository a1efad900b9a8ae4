// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedule: the tiles of a signature assigned to CTAs, longest first.
//
// Every output element lies in exactly one tile; a tile computes all of K, so
// no accumulation order depends on the schedule. The longest CTA is within 4/3
// of max(mean CTA, largest tile) unless its smallest tile cannot be cut further. A pure function;
// the same input gives the same schedule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/signature.h"
#include "kernels/problem.h"

namespace tetrad {

// How a kernel wants output cut. Tiles are at most max_rows x max_columns;
// cuts fall on multiples of the granules (the last tile of a group may be
// smaller).
struct TileTraits {
  int32_t max_rows = 256;
  int32_t max_columns = 512;
  int32_t row_granule = 1;
  int32_t column_granule = 32;
  // Fixed cost of a tile per unit of k and column, in rows: reading and
  // expanding the weights, however few rows use them.
  int32_t overhead_rows = 16;
  bool operator==(const TileTraits&) const = default;
};

struct Schedule {
  std::vector<Tile> tiles;             // of CTA 0, then CTA 1, ...; each CTA longest first
  std::vector<int32_t> cta_begin;      // ctas + 1 indices into tiles
  std::vector<int32_t> longest_first;  // all tiles by falling cost, for claiming
  double mean_cost = 0;
  double longest_cta_cost = 0;
  double largest_tile_cost = 0;

  int32_t ctas() const { return static_cast<int32_t>(cta_begin.size()) - 1; }
  // longest CTA / max(mean, largest tile); 1 if there is no work.
  double balance() const;
};

// Cost of a tile in the schedule's unit, multiply-adds.
double TileCost(const Tile& tile, int32_t k, const TileTraits& traits);

// `groups` are those of a canonical signature with host M; ctas >= 1.
Schedule LayOutTiles(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas);

}  // namespace tetrad
