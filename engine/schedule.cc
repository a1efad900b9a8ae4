// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "kernels/nvfp4.h"

namespace tetrad {
namespace {

constexpr double kBalanceBound = 4.0 / 3.0;

// The size of a group's tiles; the last of a row or column may be smaller.
struct Cut {
  int32_t rows;
  int32_t columns;
};

// Pieces of `extent`, as even as the granule allows, none above `limit`.
int32_t PieceSize(int32_t extent, int32_t limit, int32_t granule) {
  const int64_t pieces = CeilDiv(extent, limit);
  const int64_t size = RoundUp(CeilDiv(extent, pieces), granule);
  return static_cast<int32_t>(std::min<int64_t>(size, limit));
}

int32_t Halve(int32_t size, int32_t granule) {
  return static_cast<int32_t>(std::max<int64_t>(RoundUp(size / 2, granule), granule));
}

// The coarsest cut of a group whose tiles cost at most `target`, or the finest
// there is. Columns are halved first: tiles of fewer rows would expand the same
// weights again.
Cut CutFor(const GroupShape& shape, const TileTraits& traits, double target) {
  Cut cut{PieceSize(shape.m, traits.max_rows, traits.row_granule),
          PieceSize(shape.n, traits.max_columns, traits.column_granule)};
  while (true) {
    const Tile largest{0, 0, std::min(cut.rows, shape.m), 0, std::min(cut.columns, shape.n)};
    if (TileCost(largest, shape.k, traits) <= target) return cut;
    if (largest.columns > traits.column_granule) {
      cut.columns = Halve(largest.columns, traits.column_granule);
    } else if (largest.rows > traits.row_granule) {
      cut.rows = Halve(largest.rows, traits.row_granule);
    } else {
      return cut;
    }
  }
}

std::vector<Tile> CutGroups(std::span<const GroupShape> groups, const TileTraits& traits,
                            double target) {
  std::vector<Tile> tiles;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto [m, n, k] = groups[g];
    if (m == 0) continue;
    const Cut cut = CutFor(groups[g], traits, target);
    for (int64_t row = 0; row < m; row += cut.rows) {
      for (int64_t column = 0; column < n; column += cut.columns) {
        tiles.push_back({static_cast<int32_t>(g), static_cast<int32_t>(row),
                         static_cast<int32_t>(std::min<int64_t>(cut.rows, m - row)),
                         static_cast<int32_t>(column),
                         static_cast<int32_t>(std::min<int64_t>(cut.columns, n - column))});
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
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return cost[x] > cost[y]; });

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

}  // namespace

double Schedule::balance() const {
  const double bound = std::max(mean_cost, largest_tile_cost);
  return bound > 0 ? longest_cta_cost / bound : 1.0;
}

double TileCost(const Tile& tile, int32_t k, const TileTraits& traits) {
  return static_cast<double>(k) * tile.columns * (tile.rows + traits.overhead_rows);
}

Schedule LayOutTiles(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas) {
  Schedule best = Assign(groups, traits, ctas, CutGroups(groups, traits, HUGE_VAL));
  // List scheduling ends within mean + the last tile, so tiles of a third of
  // the mean always meet the bound. Coarser tiles often do, and expand fewer
  // weights twice. Idle CTAs count too, although they do not break the bound.
  for (const double parts : {1.0, 2.0, 3.0}) {
    if (best.longest_cta_cost <= kBalanceBound * best.mean_cost) break;
    Schedule finer =
        Assign(groups, traits, ctas, CutGroups(groups, traits, best.mean_cost / parts));
    const bool held = best.balance() <= kBalanceBound, holds = finer.balance() <= kBalanceBound;
    if (holds != held ? holds : finer.longest_cta_cost < best.longest_cta_cost) {
      best = std::move(finer);
    }
  }
  return best;
}

}  // namespace tetrad
