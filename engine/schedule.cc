// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <algorithm>
#include <numeric>
#include <functional>
#include <queue>
#include <utility>

#include "kernels/nvfp4.h"

namespace tetrad {
namespace {

constexpr double kBalanceBound = 4.0 / 3.0;

// How one attempt cuts the groups.
struct Cut {
  int32_t max_rows;
  int32_t max_columns;
};

// Pieces of `extent`, as even as the granule allows, none above `limit`.
int32_t PieceSize(int32_t extent, int32_t limit, int32_t granule) {
  const int64_t pieces = CeilDiv(extent, limit);
  const int64_t size = RoundUp(CeilDiv(extent, pieces), granule);
  return static_cast<int32_t>(std::min<int64_t>(size, limit));
}

std::vector<Tile> CutGroups(std::span<const GroupShape> groups, const TileTraits& traits,
                            const Cut& cut) {
  std::vector<Tile> tiles;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupShape& shape = groups[g];
    if (shape.m == 0) continue;
    const int32_t rows = PieceSize(shape.m, cut.max_rows, traits.row_granule);
    const int32_t columns = PieceSize(shape.n, cut.max_columns, traits.column_granule);
    for (int32_t row = 0; row < shape.m; row += rows) {
      for (int64_t column = 0; column < shape.n; column += columns) {
        const int32_t at = static_cast<int32_t>(column);
        tiles.push_back({static_cast<int32_t>(g), row, std::min(rows, shape.m - row), at,
                         std::min(columns, shape.n - at)});
      }
    }
  }
  return tiles;
}

// Longest processing time first: each tile, by falling cost, goes to the CTA
// with the least work so far.
Schedule Assign(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas,
                const std::vector<Tile>& tiles) {
  Schedule schedule;
  std::vector<double> cost(tiles.size());
  for (size_t i = 0; i < tiles.size(); ++i) {
    cost[i] = TileCost(tiles[i], groups[tiles[i].group].k, traits);
  }
  std::vector<int32_t> order(tiles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return cost[x] > cost[y]; });

  using Load = std::pair<double, int32_t>;  // work so far, CTA; the lower CTA wins a tie
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (int32_t cta = 0; cta < ctas; ++cta) loads.push({0.0, cta});
  std::vector<std::vector<int32_t>> of_cta(ctas);
  double total = 0;
  for (const int32_t tile : order) {
    auto [load, cta] = loads.top();
    loads.pop();
    of_cta[cta].push_back(tile);
    loads.push({load + cost[tile], cta});
    schedule.longest_cta_cost = std::max(schedule.longest_cta_cost, load + cost[tile]);
    total += cost[tile];
  }
  schedule.mean_cost = total / ctas;
  if (!order.empty()) schedule.largest_tile_cost = cost[order[0]];

  std::vector<int32_t> position(tiles.size());
  schedule.tiles.reserve(tiles.size());
  schedule.cta_begin.reserve(ctas + 1);
  for (const std::vector<int32_t>& list : of_cta) {
    schedule.cta_begin.push_back(static_cast<int32_t>(schedule.tiles.size()));
    for (const int32_t tile : list) {
      position[tile] = static_cast<int32_t>(schedule.tiles.size());
      schedule.tiles.push_back(tiles[tile]);
    }
  }
  schedule.cta_begin.push_back(static_cast<int32_t>(schedule.tiles.size()));
  schedule.longest_first.reserve(tiles.size());
  for (const int32_t tile : order) schedule.longest_first.push_back(position[tile]);
  return schedule;
}

// A finer cut than `cut`, halving what costs least to halve: columns first
// (each tile then expands fewer weights), rows only when columns are at their
// granule. False if nothing is left to halve.
bool Refine(const TileTraits& traits, int32_t largest_m, Cut& cut) {
  if (cut.max_columns > traits.column_granule) {
    const int64_t half = RoundUp(CeilDiv(cut.max_columns, 2), traits.column_granule);
    cut.max_columns = static_cast<int32_t>(half < cut.max_columns ? half : traits.column_granule);
    return true;
  }
  cut.max_rows = std::min(cut.max_rows, std::max(largest_m, 1));
  if (cut.max_rows > traits.row_granule) {
    const int64_t half = RoundUp(CeilDiv(cut.max_rows, 2), traits.row_granule);
    cut.max_rows = static_cast<int32_t>(half < cut.max_rows ? half : traits.row_granule);
    return true;
  }
  return false;
}

}  // namespace

double Schedule::balance() const {
  const double bound = std::max(mean_cost, largest_tile_cost);
  return bound > 0 ? longest_cta_cost / bound : 1.0;
}

double TileCost(const Tile& tile, int32_t k, const TileTraits& traits) {
  return static_cast<double>(k) * tile.columns * (tile.rows + traits.overhead_rows);
}

Schedule LayOutTiles(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas) {
  int32_t largest_m = 0;
  for (const GroupShape& shape : groups) largest_m = std::max(largest_m, shape.m);
  Cut cut{traits.max_rows, traits.max_columns};
  Schedule best = Assign(groups, traits, ctas, CutGroups(groups, traits, cut));
  // A finer cut balances better but repeats the per-tile overhead more often,
  // so the comparison is of the longest CTA, overhead included. Idle CTAs are
  // a reason to go on even where the bound holds trivially.
  while ((best.balance() > kBalanceBound ||
          best.longest_cta_cost > kBalanceBound * best.mean_cost) &&
         Refine(traits, largest_m, cut)) {
    Schedule finer = Assign(groups, traits, ctas, CutGroups(groups, traits, cut));
    const bool holds = finer.balance() <= kBalanceBound;
    const bool held = best.balance() <= kBalanceBound;
    if (holds != held ? holds : finer.longest_cta_cost < best.longest_cta_cost) {
      best = std::move(finer);
    }
  }
  return best;
}

}  // namespace tetrad
