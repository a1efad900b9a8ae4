// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Covers of every number of rows, that no counts give longer lists than promised, and the
// table of what is chosen for which capacity.
#include "kernels/sm90/live_tiles.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/random.h"
#include "kernels/sm90/tiles.h"

namespace tetrad::sm90 {
namespace {

int32_t Count(uint32_t cover, int32_t w) { return static_cast<int32_t>(cover >> (8 * w) & 0xFF); }

int32_t Widest(const Instance& instance) { return *std::ranges::max_element(instance.widths); }

// Row tiles of a group: what live_tiles.cuh makes of the table.
int64_t RowTiles(const Instance& instance, const std::vector<uint32_t>& covers, int32_t rows) {
  int32_t whole = 0;
  while (rows - whole * Widest(instance) > kCoverRows) ++whole;
  const uint32_t cover = covers[static_cast<size_t>(rows - whole * Widest(instance))];
  int64_t tiles = whole;
  for (int32_t w = 0; w < kMaxWidths; ++w) tiles += Count(cover, w);
  return tiles;
}

TEST(LiveTilesTest, CoversAreThoseOfListsFromTheHost) {
  for (const Instance& instance : kInstances) {
    for (const int32_t k : {32, 288, 7168}) {  // 288: two covers of 145 rows are equal
      const std::vector<uint32_t> covers = CoverTable(instance, k);
      ASSERT_EQ(covers.size(), kCoverRows + 1);
      EXPECT_EQ(covers[0], 0u);
      for (int32_t rows = 1; rows <= kCoverRows; ++rows) {
        const std::vector<TileGroup> groups = {{.m = rows, .n = 100, .k = k, .c_stride = 100}};
        const TileLists lists = CutTiles(instance, {}, groups, 1);
        int32_t counts[kMaxWidths] = {};
        for (const TileEntry& tile : lists.entries) {
          if (tile.width >= 0) ++counts[tile.width];
        }
        for (int32_t w = 0; w < kMaxWidths; ++w) {
          ASSERT_EQ(Count(covers[static_cast<size_t>(rows)], w), counts[w])
              << instance.name << " k " << k << " rows " << rows << " width " << w;
        }
      }
    }
  }
}

TEST(LiveTilesTest, TilesOfACoverAreFullButTheLast) {
  for (const Instance& instance : kInstances) {
    const std::vector<uint32_t> covers = CoverTable(instance, 2048);
    for (int32_t rows = 1; rows <= kCoverRows; ++rows) {
      int32_t covered = 0, last = 0;
      for (int32_t w = kMaxWidths - 1; w >= 0; --w) {
        const int32_t tiles = Count(covers[static_cast<size_t>(rows)], w);
        covered += tiles * instance.widths[w];
        if (tiles > 0) last = instance.widths[w];
      }
      EXPECT_GE(covered, rows) << instance.name;
      EXPECT_LT(covered - last, rows) << instance.name;
    }
  }
}

// What is taken off leaves rows that the table has.
TEST(LiveTilesTest, WholeTilesLeaveRowsOfTheTable) {
  for (const int32_t widest : {8, 112, 128, 168, 256}) {
    for (const int32_t rows : {0, 1, 511, 512, 513, 767, 768, 769, 100'000, 0x7FFFFFFF}) {
      const int32_t rest = rows - WholeTiles(rows, widest) * widest;
      EXPECT_LE(rest, kCoverRows) << rows;
      EXPECT_GE(rest, rows <= kCoverRows ? rows : kCoverRows - widest + 1) << rows;
    }
  }
}

// The most row tiles of `groups` groups with `capacity` rows together, by all ways to share them.
int64_t MostShared(const std::vector<int64_t>& tiles, int32_t groups, int32_t capacity) {
  std::vector<int64_t> most(static_cast<size_t>(capacity) + 1, 0);
  for (int32_t g = 0; g < groups; ++g) {
    for (auto rows = static_cast<size_t>(capacity); rows > 0; --rows) {
      for (size_t of_group = 1; of_group <= rows; ++of_group) {
        most[rows] = std::max(most[rows], most[rows - of_group] + tiles[of_group]);
      }
    }
  }
  return most.back();
}

TEST(LiveTilesTest, NoCountsGiveLongerListsThanPromised) {
  Random random(61);
  for (const Instance& instance : kInstances) {
    for (int round = 0; round < 12; ++round) {
      LiveShape shape;
      shape.groups = random.Between(1, 9);
      shape.capacity_rows = random.Between(0, round < 8 ? 300 : 1200);
      shape.n = random.Between(1, 1000);
      shape.k = 32 * random.Between(1, 200);
      const std::vector<uint32_t> covers = CoverTable(instance, shape.k);
      std::vector<int64_t> tiles;
      for (int32_t rows = 0; rows <= shape.capacity_rows; ++rows) {
        tiles.push_back(RowTiles(instance, covers, rows));
      }
      const int32_t ctas = random.Between(1, 200);
      const int64_t columns = CeilDiv(shape.n, kBlockRows * instance.strips);
      const auto expect_bound = [&](int64_t row_tiles) {
        const int64_t needed = CeilDiv(row_tiles * columns, ctas) + 1;
        const int64_t promised = MostTilesPerCta(instance, shape, ctas);
        const std::string what = std::string(instance.name) + ", " + std::to_string(shape.groups) +
                                 " groups, capacity " + std::to_string(shape.capacity_rows);
        EXPECT_GE(promised, needed) << what;
        // Not much more either: it is memory.
        EXPECT_LE((promised - 1) * ctas, (row_tiles + shape.groups) * columns + ctas) << what;
      };
      shape.m_source = MSource::kCounts;
      expect_bound(shape.groups * *std::ranges::max_element(tiles));
      shape.m_source = MSource::kOffsets;
      expect_bound(MostShared(tiles, shape.groups, static_cast<int32_t>(shape.capacity_rows)));
    }
  }
}

TEST(LiveTilesTest, ListsOfTheLargestCapacity) {
  const LiveShape shape{
      .m_source = MSource::kCounts, .capacity_rows = 0x7FFFFFFF, .groups = 1, .n = 128, .k = 4096};
  for (const Instance& instance : kInstances) {
    EXPECT_GE(MostTilesPerCta(instance, shape, 1), 0x7FFFFFFF / Widest(instance));
    EXPECT_LE(MostTilesPerCta(instance, shape, 1), 0x7FFFFFFF / Widest(instance) + 66);
  }
}

// Rows of each group of the spread, one by one, and each tile to the next CTA.
int64_t LongestBySpread(const Instance& instance, const LiveShape& shape, int64_t size,
                        int32_t ctas) {
  const std::vector<uint32_t> covers = CoverTable(instance, shape.k);
  const auto mean = static_cast<double>(CeilDiv(shape.capacity_rows, shape.groups));
  int64_t tiles[kMaxWidths] = {};
  for (int32_t i = 0; i < shape.groups; ++i) {
    const double of_mean =
        shape.groups == 1 ? 1 : 0.5 + static_cast<double>(i) / (shape.groups - 1);
    // Rounded up at a half, which a double may miss.
    const double exact = mean * static_cast<double>(size) / 16 * of_mean;
    const auto rows = std::min(static_cast<int64_t>(exact + 0.5 + 1e-9), shape.capacity_rows);
    const int32_t whole = WholeTiles(static_cast<int32_t>(rows), Widest(instance));
    const uint32_t cover = covers[static_cast<size_t>(rows - int64_t{whole} * Widest(instance))];
    for (int32_t w = 0; w < kMaxWidths; ++w) {
      tiles[w] += Count(cover, w) + (instance.widths[w] == Widest(instance) ? whole : 0);
    }
  }
  std::vector<int64_t> cycles(static_cast<size_t>(ctas), 0);
  int64_t next = 0;
  for (int32_t w = kMaxWidths - 1; w >= 0; --w) {
    const int64_t columns = CeilDiv(shape.n, kBlockRows * instance.strips);
    for (int64_t left = tiles[w] * columns; left > 0; --left, ++next) {
      cycles[static_cast<size_t>(next % ctas)] +=
          TileCycles(instance, instance.widths[w], static_cast<int32_t>(CeilDiv(shape.k, kBlockK)));
    }
  }
  return *std::ranges::max_element(cycles);
}

TEST(LiveTilesTest, ChoosesTheShortestOfTheSpread) {
  Random random(62);
  for (int round = 0; round < 200; ++round) {
    LiveShape shape;
    shape.groups = random.OneIn(8) ? 1 : random.Between(1, random.OneIn(4) ? 3000 : 100);
    shape.capacity_rows =
        random.OneIn(4) ? random.Between(0, 400) : shape.groups * random.Between(1, 150);
    shape.n = random.Between(1, 600);
    shape.k = 32 * random.Between(1, 200);
    const int32_t ctas = random.Between(1, 140);
    const Instance* best = nullptr;
    int64_t least = 0;
    for (const Instance& instance : kInstances) {
      int64_t cycles = 0;
      for (int64_t size = 12; size <= 20; ++size) {
        cycles += LongestBySpread(instance, shape, size, ctas);
      }
      if (best == nullptr || cycles < least) {
        best = &instance;
        least = cycles;
      }
    }
    EXPECT_STREQ(ChooseLiveInstance(shape, ctas).name, best->name)
        << "round " << round << ", " << shape.groups << " groups, " << shape.capacity_rows;
  }
}

// Capacities as a server would ask for them; the rows that it then gets are about half to one
// and a half times the mean.
TEST(LiveTilesTest, ChoosesByTheMean) {
  const struct {
    const char* what;
    LiveShape shape;
    const char* instance;
  } cases[] = {
      {"S1, 128 rows a group", {MSource::kOffsets, 1024, 8, 4096, 7168}, "mixed"},
      {"S1, by counts", {MSource::kCounts, 1024, 8, 4096, 7168}, "mixed"},
      {"S4, 256 rows a group", {MSource::kOffsets, 512, 2, 4096, 1536}, "mixed"},
      {"decoding, 8 groups of at most 8 rows", {MSource::kCounts, 8, 8, 4096, 7168}, "decode"},
      {"D3, 2 rows a group", {MSource::kOffsets, 256, 128, 768, 2048}, "decode"},
      // Half of the groups have more than the 8 rows of a tile of `decode`.
      {"D1, 8 rows a group", {MSource::kOffsets, 64, 8, 4096, 7168}, "skewed"},
      // 16 to 48 rows, unlike those of D2: mostly one tile of 48.
      {"D2, 32 rows a group", {MSource::kOffsets, 2048, 64, 1536, 4096}, "wide"},
      {"P1, 2048 rows a group", {MSource::kOffsets, 16384, 8, 4096, 7168}, "prefill"},
  };
  for (const auto& [what, shape, instance] : cases) {
    EXPECT_STREQ(ChooseLiveInstance(shape, 132).name, instance) << what;
  }
}

}  // namespace
}  // namespace tetrad::sm90
