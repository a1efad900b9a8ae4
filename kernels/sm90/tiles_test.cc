// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What lists of tiles promise the kernel, for random groups; that the model agrees
// with what was measured, for the named shapes.
#include "kernels/sm90/tiles.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/random.h"
#include "kernels/shapes.h"

namespace tetrad::sm90 {
namespace {

constexpr int32_t kMultiprocessors = 132;

int32_t Steps(const TileGroup& group) { return static_cast<int32_t>(CeilDiv(group.k, kBlockK)); }

ProblemTypes RandomTypes(Random& random) {
  constexpr OutputType kTypes[] = {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32};
  return {.c_type = kTypes[random.Below(3)],
          .c_layout = random.OneIn(2) ? OutputLayout::kRowMajor : OutputLayout::kColumnMajor};
}

// Gaps between rows, blocks and outputs of groups: nothing follows from something else.
std::vector<TileGroup> Place(const ProblemTypes& types, std::span<const GroupShape> shapes,
                             Random& random) {
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  std::vector<TileGroup> groups;
  TileGroup next{.token = 5, .scale_row = 11, .block = 3, .c = 64};
  for (const auto& [m, n, k] : shapes) {
    TileGroup group = next;
    group.m = m;
    group.n = n;
    group.k = k;
    group.c_stride = (row_major ? n : m) + random.Between(0, 9);
    groups.push_back(group);
    next.token += m + random.Between(0, 3);
    next.scale_row += m + random.Between(0, 5);
    next.block += static_cast<uint32_t>(PackedBlocks(n, k) + random.Between(0, 2));
    next.c += ((row_major ? m : n) * group.c_stride + random.Between(0, 7)) *
              OutputElementBytes(types.c_type);
  }
  return groups;
}

std::vector<TileGroup> Place(std::span<const GroupShape> shapes) {
  Random random(1);
  return Place({}, shapes, random);
}

std::vector<TileGroup> RandomGroups(const ProblemTypes& types, Random& random) {
  std::vector<GroupShape> shapes(random.Between(1, random.OneIn(8) ? 150 : 12));
  for (GroupShape& shape : shapes) {
    shape = {.m = random.OneIn(5)    ? 0
                  : random.OneIn(2)  ? random.Between(1, 40)
                  : random.OneIn(10) ? random.Between(500, 3000)
                                     : random.Between(1, 300),
             .n = random.OneIn(2) ? random.Between(1, 300) : 128 * random.Between(1, 9),
             .k = 32 * random.Between(1, random.OneIn(3) ? 256 : 8)};
  }
  return Place(types, shapes, random);
}

// One entry, and the outputs it covers, `written` times so far (of its group).
void CheckTile(const ProblemTypes& types, const TileGroup& group, const Instance& instance,
               const TileEntry& tile, std::vector<uint8_t>& written) {
  ASSERT_LT(tile.width, kMaxWidths);
  ASSERT_GT(tile.rows, 0);
  ASSERT_LE(tile.rows, instance.widths[tile.width]);
  EXPECT_EQ(tile.steps, Steps(group));
  EXPECT_EQ(tile.c_stride, group.c_stride);
  const int32_t row = tile.token - group.token;
  EXPECT_EQ(tile.scale_row - group.scale_row, row);
  ASSERT_GE(row, 0);
  ASSERT_LE(row + tile.rows, group.m);
  const int64_t bytes = OutputElementBytes(types.c_type);
  ASSERT_EQ((tile.c - group.c) % bytes, 0);
  const int64_t elements = (tile.c - group.c) / bytes;
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  const int64_t line = row_major ? 1 : group.c_stride;
  const int64_t before = elements - row * (row_major ? group.c_stride : 1);
  ASSERT_EQ(before % line, 0);
  const int64_t column = before / line;
  ASSERT_EQ(column % kBlockRows, 0);
  ASSERT_GE(column, 0);
  ASSERT_LT(column, group.n);
  EXPECT_EQ(tile.columns, group.n - column);
  EXPECT_EQ(tile.block, group.block + column / kBlockRows * tile.steps);
  const int64_t end = std::min<int64_t>(group.n, column + kBlockRows * instance.strips);
  for (int64_t r = row; r < row + tile.rows; ++r) {
    for (int64_t c = column; c < end; ++c) ++written[r * group.n + c];
  }
}

// What no way to deal these tiles can be below: the mean, the largest tile, and what
// follows when there are more tiles than CTAs. Of the j largest, some CTA has
// ceil(j / ctas); of the ctas + i largest, two that are not alone or three.
int64_t LeastLongest(std::vector<int64_t> cycles, int64_t mean, int64_t ctas) {
  std::ranges::sort(cycles, std::greater<>());
  int64_t least = mean;
  for (size_t j = 0; j < cycles.size(); ++j) {
    least = std::max(least, (static_cast<int64_t>(j) / ctas + 1) * cycles[j]);
  }
  for (int64_t i = 1; i <= ctas && ctas + i <= std::ssize(cycles); ++i) {
    const int64_t last = cycles[ctas + i - 1];
    least = std::max(least, std::min(cycles[ctas - i] + last, 3 * last));
  }
  return least;
}

// Tiles of a CTA that gets no more.
int64_t FullList(int64_t tiles, int64_t multiprocessors) {
  return 4 * tiles / multiprocessors + 63;
}

void CheckLists(const ProblemTypes& types, std::span<const TileGroup> groups,
                int32_t multiprocessors, const TileLists& lists) {
  ASSERT_NE(lists.instance, nullptr);
  const Instance& instance = *lists.instance;
  ASSERT_LE(lists.ctas, multiprocessors);
  ASSERT_EQ(std::ssize(lists.entries), int64_t{lists.ctas} * lists.tiles_per_cta);
  std::vector<std::vector<uint8_t>> written;
  for (const TileGroup& group : groups) written.emplace_back(size_t{1} * group.m * group.n);
  std::vector<int64_t> cycles;
  int64_t sum = 0, longest = 0;
  int32_t most = 0;
  for (int32_t cta = 0; cta < lists.ctas; ++cta) {
    const auto list = std::span(lists.entries).subspan(cta * lists.tiles_per_cta);
    int64_t load = 0;
    int32_t i = 0;
    for (; list[i].width >= 0; ++i) {
      ASSERT_LT(i + 1, lists.tiles_per_cta) << "no end";
      ASSERT_LT(list[i].group, std::ssize(groups));
      CheckTile(types, groups[list[i].group], instance, list[i], written[list[i].group]);
      if (testing::Test::HasFatalFailure()) return;
      cycles.push_back(TileCycles(instance, instance.widths[list[i].width], list[i].steps));
      load += cycles.back();
    }
    EXPECT_GT(i, 0) << "idle";
    most = std::max(most, i);
    for (; i < lists.tiles_per_cta; ++i) ASSERT_EQ(list[i].width, -1);
    sum += load;
    longest = std::max(longest, load);
  }
  EXPECT_EQ(lists.tiles_per_cta, lists.ctas == 0 ? 0 : most + 1);
  for (const auto& counts : written) {
    EXPECT_TRUE(std::ranges::all_of(counts, [](uint8_t count) { return count == 1; }));
  }
  EXPECT_EQ(lists.longest_cycles, longest);
  EXPECT_EQ(lists.mean_cycles, CeilDiv(sum, multiprocessors));
  EXPECT_LE(std::ssize(lists.entries), 4 * std::ssize(cycles) + int64_t{64} * lists.ctas);
  // But where a list was full.
  if (most == FullList(std::ssize(cycles), multiprocessors)) return;
  EXPECT_LE(3 * longest, 4 * LeastLongest(cycles, lists.mean_cycles, multiprocessors));
}

TEST(TilesTest, EveryOutputOnceInEveryInstance) {
  Random random(41);
  for (int round = 0; round < 60; ++round) {
    const ProblemTypes types = RandomTypes(random);
    const std::vector<TileGroup> groups = RandomGroups(types, random);
    const int32_t multiprocessors = random.OneIn(3) ? kMultiprocessors : random.Between(1, 40);
    for (const Instance& instance : kInstances) {
      const TileLists lists = CutTiles(instance, types, groups, multiprocessors);
      EXPECT_EQ(lists.instance, &instance);
      CheckLists(types, groups, multiprocessors, lists);
      ASSERT_FALSE(HasFailure()) << "round " << round << ", " << instance.name;
    }
  }
}

TileLists ExpectTheBestIsChosen(const ProblemTypes& types, std::span<const TileGroup> groups,
                                int32_t multiprocessors) {
  TileLists chosen = ChooseTiles(types, groups, multiprocessors);
  const Instance* best = nullptr;
  int64_t longest = 0;
  for (const Instance& instance : kInstances) {
    const TileLists lists = CutTiles(instance, types, groups, multiprocessors);
    if (best != nullptr && lists.longest_cycles >= longest) continue;
    best = &instance;
    longest = lists.longest_cycles;
  }
  EXPECT_EQ(chosen.longest_cycles, longest);
  EXPECT_STREQ(chosen.instance->name, best->name);
  CheckLists(types, groups, multiprocessors, chosen);
  return chosen;
}

TEST(TilesTest, ChoosesTheInstanceWithTheShortestLongestCta) {
  Random random(42);
  for (int round = 0; round < 60; ++round) {
    const ProblemTypes types = RandomTypes(random);
    const std::vector<TileGroup> groups = RandomGroups(types, random);
    const int32_t multiprocessors = random.OneIn(3) ? kMultiprocessors : random.Between(1, 40);
    ExpectTheBestIsChosen(types, groups, multiprocessors);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// So many groups that no covers but the cheapest are tried, which are dealt by kind.
TEST(TilesTest, ManyGroups) {
  Random random(45);
  for (const int32_t most_rows : {8, 8, 20, 40}) {
    std::vector<GroupShape> shapes(random.Between(13'000, 16'000));
    const int32_t steps = random.OneIn(2) ? 1 : 60;
    for (GroupShape& shape : shapes) {
      shape = {.m = random.Between(0, most_rows),
               .n = random.Between(1, 2000 / most_rows),
               .k = 64 * random.Between(1, steps)};
    }
    ExpectTheBestIsChosen({}, Place(shapes), random.Between(1, 200));
    ASSERT_FALSE(HasFailure()) << "at most " << most_rows << " rows";
  }
}

// A few CTAs have nothing but short tiles until they have as much as those with a deep one.
TEST(TilesTest, ListsStayEvenBesideDeepGroups) {
  Random random(46);
  int full = 0;
  for (int round = 0; round < 60; ++round) {
    const bool most = round == 0;
    const int32_t multiprocessors =
        most ? kMultiprocessors : random.Between(5, random.OneIn(4) ? 60 : 8);
    const int32_t deep_columns = multiprocessors - (most || random.OneIn(2) ? 1 : 2);
    const int32_t rows = most ? 8 : random.Between(1, 60);
    const int32_t columns = most ? 1 : random.Between(1, 20);
    std::vector<GroupShape> shapes(most ? 100'001 : random.Between(300, 1'500) / columns + 2);
    for (GroupShape& shape : shapes) {
      shape = {.m = random.Between(1, rows), .n = (columns - 1) * kBlockRows + 1, .k = 64};
    }
    shapes[shapes.size() / 2] = {.m = most ? 8 : random.Between(1, 200),
                                 .n = deep_columns * kBlockRows,
                                 .k = 1 << (most ? 20 : random.Between(14, 19))};
    const TileLists lists = ExpectTheBestIsChosen({}, Place(shapes), multiprocessors);
    int64_t tiles = 0;
    for (const TileEntry& tile : lists.entries) tiles += tile.width >= 0 ? 1 : 0;
    if (lists.tiles_per_cta - 1 == FullList(tiles, multiprocessors)) ++full;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GE(full, 10);
}

TEST(TilesTest, TheSameListsForTheSameGroups) {
  Random random(43);
  for (int round = 0; round < 20; ++round) {
    const ProblemTypes types = RandomTypes(random);
    const std::vector<TileGroup> groups = RandomGroups(types, random);
    const TileLists one = ChooseTiles(types, groups, kMultiprocessors);
    const TileLists other = ChooseTiles(types, std::vector(groups), kMultiprocessors);
    ASSERT_EQ(one.instance, other.instance);
    ASSERT_EQ(one.entries.size(), other.entries.size());
    ASSERT_FALSE(one.entries.empty());
    const size_t bytes = one.entries.size() * sizeof(TileEntry);
    EXPECT_EQ(std::memcmp(one.entries.data(), other.entries.data(), bytes), 0);
  }
}

TEST(TilesTest, NothingToCompute) {
  const auto empty = Place(GroupsOf(256, 512, 0, 0));
  for (const std::span<const TileGroup> groups : {std::span<const TileGroup>(), {empty}}) {
    const TileLists lists = ChooseTiles({}, groups, kMultiprocessors);
    CheckLists({}, groups, kMultiprocessors, lists);
    EXPECT_EQ(lists.ctas, 0);
    EXPECT_EQ(lists.longest_cycles, 0);
  }
}

// Alone on a multiprocessor a group takes what its cheapest cover does: all covers tried
// here, by rows. Beyond the rows that are searched it may take a little more.
TEST(TilesTest, CoversAreTheCheapest) {
  Random random(44);
  for (int round = 0; round < 40; ++round) {
    const int32_t m = random.OneIn(2) ? random.Between(1, 512) : random.Between(513, 6000);
    const auto groups = Place(GroupsOf(100, 32 * random.Between(1, 256), m));
    for (const Instance& instance : kInstances) {
      std::vector<int64_t> least(m + 1, 0);
      for (int32_t rows = 1; rows <= m; ++rows) {
        for (const int32_t width : instance.widths) {
          if (width == 0) break;
          const int64_t cycles =
              least[std::max(0, rows - width)] + TileCycles(instance, width, Steps(groups[0]));
          if (least[rows] == 0 || cycles < least[rows]) least[rows] = cycles;
        }
      }
      const int64_t taken = CutTiles(instance, {}, groups, 1).longest_cycles;
      EXPECT_GE(taken, least[m]);
      EXPECT_LE(taken, m <= 512 ? least[m] : least[m] + least[m] / 200)
          << instance.name << " m " << m << " k " << groups[0].k;
    }
  }
}

// The cheapest cover of 128 rows is one tile; with CTAs to spare two are faster.
TEST(TilesTest, CoversAreTradedForBalance) {
  const auto groups = Place(GroupsOf(128, 4096, 128));
  EXPECT_EQ(CutTiles(kInstances[0], {}, groups, 1).tiles_per_cta, 2);
  EXPECT_EQ(CutTiles(kInstances[0], {}, groups, 1).entries[0].rows, 128);
  const TileLists lists = CutTiles(kInstances[0], {}, groups, 2);
  EXPECT_EQ(lists.ctas, 2);
  EXPECT_EQ(lists.entries[0].rows, 64);
}

// Medians of one H200 (docs/kernels-sm90.md), with the instance chosen by hand.
struct Measured {
  std::string_view shape;
  std::string_view instance;
  double us;
};
constexpr Measured kMeasured[] = {
    {"S1", "mixed", 97},  {"S1", "wide", 119},    {"S1", "even", 132},     {"S2", "wide", 53},
    {"S2", "mixed", 61},  {"S2", "even", 66},     {"S3", "even", 21},      {"S3", "mixed", 23.5},
    {"S3", "wide", 30},   {"S4", "mixed", 11.2},  {"S4", "even", 17.7},    {"D1", "decode", 34.7},
    {"D1", "skewed", 43}, {"D2", "skewed", 75},   {"D2", "mixed", 97},     {"D2", "decode", 200},
    {"D3", "decode", 31}, {"D3", "skewed", 37.5}, {"P1", "prefill", 1290}, {"P1", "mixed", 1419},
};
constexpr double kTolerance = 0.2;
// Clocks move between 1.98 and 1.5 GHz with the load; the model has one. A launch's
// entry, first loads and exit; the end of its last tile is in the model.
constexpr double kCyclesPerUs = 1700;
constexpr double kLaunchUs = 3;

std::vector<TileGroup> NamedGroups(std::string_view name) {
  for (const std::span<const NamedShape> shapes :
       {std::span<const NamedShape>(kBenchmarkShapes), {kDecodeShapes}, {kPrefillShapes}}) {
    for (const NamedShape& shape : shapes) {
      if (shape.name == name) return Place(shape.groups);
    }
  }
  return {};
}

double Microseconds(int64_t cycles) {
  return static_cast<double>(cycles) / kCyclesPerUs + kLaunchUs;
}

TEST(TilesTest, ModelAgreesWithTheDevice) {
  std::string table = "shape instance measured predicted (mean) us\n";
  for (const auto& [shape, name, us] : kMeasured) {
    const auto* const instance = std::ranges::find(kInstances, name, &Instance::name);
    ASSERT_NE(instance, std::end(kInstances));
    const TileLists lists = CutTiles(*instance, {}, NamedGroups(shape), kMultiprocessors);
    const double predicted = Microseconds(lists.longest_cycles);
    EXPECT_NEAR(predicted / us, 1, kTolerance) << shape << " " << instance->name;
    absl::StrAppendFormat(&table, "%s %-8s %7.1f %7.1f (%.1f) %+3.0f %%\n", std::string(shape),
                          instance->name, us, predicted, Microseconds(lists.mean_cycles),
                          100 * (predicted / us - 1));
  }
  if (HasFailure()) ADD_FAILURE() << table;
}

TEST(TilesTest, ChoosesWhatMeasuredBest) {
  const struct {
    std::string_view shape;
    const char* instance;
  } cases[] = {{"S1", "mixed"},   {"S2", "wide"},   {"S3", "even"},   {"S4", "mixed"},
               {"P1", "prefill"}, {"D1", "decode"}, {"D2", "skewed"}, {"D3", "decode"}};
  for (const auto& [shape, instance] : cases) {
    const std::vector<TileGroup> groups = NamedGroups(shape);
    const TileLists lists = ChooseTiles({}, groups, kMultiprocessors);
    EXPECT_STREQ(lists.instance->name, instance) << shape;
    EXPECT_GT(lists.ctas, 0);
  }
}

}  // namespace
}  // namespace tetrad::sm90
