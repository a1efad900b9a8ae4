// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "kernels/shapes.h"

namespace tetrad {
namespace {

TileTraits Traits(int32_t rows, int32_t columns, int32_t row_granule, int32_t column_granule) {
  TileTraits traits;
  traits.max_rows = rows;
  traits.max_columns = columns;
  traits.row_granule = row_granule;
  traits.column_granule = column_granule;
  return traits;
}

// Every element of every group is in exactly one tile, every tile obeys the
// traits, and every list names every tile once.
void CheckCover(std::span<const GroupShape> groups, const TileTraits& traits,
                const Schedule& schedule) {
  std::vector<int64_t> area(groups.size());
  // Tiles of a group form a grid; equal cuts in rows and columns plus the
  // right total area means each element once.
  std::vector<std::set<std::pair<int32_t, int32_t>>> rows(groups.size()), columns(groups.size());
  std::set<std::tuple<int32_t, int32_t, int32_t>> corners;
  for (const Tile& tile : schedule.tiles) {
    ASSERT_GE(tile.group, 0);
    ASSERT_LT(static_cast<size_t>(tile.group), groups.size());
    const GroupShape& shape = groups[tile.group];
    ASSERT_GT(tile.rows, 0);
    ASSERT_GT(tile.columns, 0);
    ASSERT_LE(tile.rows, traits.max_rows);
    ASSERT_LE(tile.columns, traits.max_columns);
    ASSERT_EQ(tile.row % traits.row_granule, 0);
    ASSERT_EQ(tile.column % traits.column_granule, 0);
    ASSERT_LE(tile.row + tile.rows, shape.m);
    ASSERT_LE(tile.column + tile.columns, shape.n);
    area[tile.group] += int64_t{tile.rows} * tile.columns;
    rows[tile.group].insert({tile.row, tile.row + tile.rows});
    columns[tile.group].insert({tile.column, tile.column + tile.columns});
    ASSERT_TRUE(corners.insert({tile.group, tile.row, tile.column}).second);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    ASSERT_EQ(area[g], int64_t{groups[g].m} * groups[g].n) << "group " << g;
    if (groups[g].m == 0) continue;
    for (const auto& [cuts, extent] :
         {std::pair(rows[g], groups[g].m), {columns[g], groups[g].n}}) {
      int32_t at = 0;
      for (const auto& [begin, end] : cuts) {
        ASSERT_EQ(begin, at) << "group " << g;
        at = end;
      }
      ASSERT_EQ(at, extent);
    }
  }
  std::vector<int32_t> order = schedule.longest_first;
  std::sort(order.begin(), order.end());
  ASSERT_EQ(order.size(), schedule.tiles.size());
  for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<int32_t>(i));
}

void CheckBalance(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas,
                  const Schedule& schedule) {
  ASSERT_EQ(schedule.ctas(), ctas);
  double longest = 0, total = 0, largest = 0;
  Tile last;  // of the longest CTA
  for (int32_t cta = 0; cta < ctas; ++cta) {
    double load = 0, previous = 1e300;
    for (int32_t i = schedule.cta_begin[cta]; i < schedule.cta_begin[cta + 1]; ++i) {
      const Tile& tile = schedule.tiles[i];
      const double cost = TileCost(tile, groups[tile.group].k, traits);
      ASSERT_LE(cost, previous) << "a CTA starts with its longest tile";
      previous = cost;
      load += cost;
      largest = std::max(largest, cost);
    }
    total += load;
    if (load > longest) last = schedule.tiles[schedule.cta_begin[cta + 1] - 1];
    longest = std::max(longest, load);
  }
  ASSERT_DOUBLE_EQ(schedule.longest_cta_cost, longest);
  ASSERT_NEAR(schedule.mean_cost, total / ctas, 1e-9 * total);
  ASSERT_DOUBLE_EQ(schedule.largest_tile_cost, largest);
  const bool can_cut = last.rows > traits.row_granule || last.columns > traits.column_granule;
  const double bound = std::max(total / ctas, largest);
  if (can_cut) {
    ASSERT_LE(longest, bound * 4 / 3 * (1 + 1e-12)) << schedule.tiles.size() << " tiles " << ctas;
  } else {
    // Indivisible tiles: list scheduling still never passes mean + largest.
    ASSERT_LE(longest, total / ctas + largest);
  }
}

void Check(std::span<const GroupShape> groups, const TileTraits& traits, int32_t ctas) {
  const Schedule schedule = LayOutTiles(groups, traits, ctas);
  CheckCover(groups, traits, schedule);
  CheckBalance(groups, traits, ctas, schedule);
}

TEST(ScheduleTest, NamedShapesOnManyDevices) {
  const TileTraits traits[] = {Traits(256, 256, 1, 32), Traits(128, 128, 8, 64),
                               Traits(64, 512, 64, 128)};
  for (const auto& list : {std::span<const NamedShape>(kBenchmarkShapes),
                           {kTestShapes},
                           {kDecodeShapes},
                           {kPrefillShapes}}) {
    for (const NamedShape& shape : list) {
      for (const TileTraits& t : traits) {
        for (const int32_t ctas : {1, 2, 3, 7, 16, 132}) {
          SCOPED_TRACE(std::string(shape.name));
          Check(shape.groups, t, ctas);
        }
      }
    }
  }
}

TEST(ScheduleTest, RandomShapes) {
  std::mt19937_64 random(1);
  const auto draw = [&](int64_t below) { return static_cast<int32_t>(random() % below); };
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    std::vector<GroupShape> groups(1 + draw(round % 10 == 0 ? 300 : 9));
    for (GroupShape& shape : groups) {
      const int32_t m = draw(4) == 0 ? 0 : draw(2) == 0 ? 1 + draw(8) : 1 + draw(600);
      shape = {m, 1 + draw(draw(2) == 0 ? 40 : 900), 32 * (1 + draw(64))};
    }
    const int32_t row_granule = 1 << draw(4), column_granule = 1 << draw(7);
    const int32_t max_rows = static_cast<int32_t>(RoundUp(16 + draw(240), row_granule));
    const int32_t max_columns = static_cast<int32_t>(RoundUp(64 + draw(448), column_granule));
    Check(groups, Traits(max_rows, max_columns, row_granule, column_granule),
          1 + draw(round % 3 == 0 ? 200 : 12));
  }
}

TEST(ScheduleTest, NothingToDo) {
  const GroupShape groups[] = {{0, 64, 32}, {0, 64, 32}};
  const Schedule schedule = LayOutTiles(groups, TileTraits{}, 7);
  EXPECT_TRUE(schedule.tiles.empty());
  EXPECT_EQ(schedule.ctas(), 7);
  EXPECT_EQ(schedule.balance(), 1.0);
}

TEST(ScheduleTest, SeventyThousandGroupsAndOneTallGroup) {
  const std::vector<GroupShape> many(70000, GroupShape{1, 8, 32});
  Check(many, TileTraits{}, 132);
  const GroupShape tall[] = {{70000, 8, 32}};
  Check(tall, TileTraits{}, 132);
  const GroupShape extreme[] = {{2147483647, 1, 32}};
  Check(extreme, Traits(1 << 24, 256, 1, 32), 132);
}

TEST(ScheduleTest, SameInputSameSchedule) {
  const Schedule a = LayOutTiles(kShapeS2, TileTraits{}, 132);
  const Schedule b = LayOutTiles(kShapeS2, TileTraits{}, 132);
  EXPECT_EQ(a.tiles, b.tiles);
  EXPECT_EQ(a.cta_begin, b.cta_begin);
}

}  // namespace
}  // namespace tetrad
