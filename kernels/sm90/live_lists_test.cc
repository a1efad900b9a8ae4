// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The lists that CTAs form from live counts: the device code itself, on the emulation of
// CTAs. What all lists of a launch cover, for legal and for hostile values, against what the
// CPU makes of the same values.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/emulation/language.h"
#include "kernels/random.h"
// Below the words that stand for CUDA's.
#include "kernels/sm90/live_tiles.cuh"

namespace tetrad::sm90 {
namespace {

// As InstanceAt of ring.cuh, which the emulation cannot have.
template <int kIndex>
struct InstanceOf {
  static constexpr const Instance& kInstance = kInstances[kIndex];
  static constexpr int kThreads = Threads(kInstance);
  static constexpr int kStrips = kInstance.strips;
  static constexpr int Width(int i) { return kInstance.widths[i]; }
  static constexpr int kWidths =
      static_cast<int>(std::ranges::count_if(kInstance.widths, [](int w) { return w > 0; }));
};

// A launch, as far as lists depend on it.
struct Launch {
  ProblemTypes types;
  LiveM live;
  std::vector<int32_t> values;
  int32_t ctas = 1;
  int32_t tiles_per_cta = 0;
  uint32_t error_word = 0;
  std::vector<TileEntry> lists;
  uint8_t base[1] = {};  // of all operands, for the CPU; never read
};

constexpr int32_t kUntouched = 0x5A5A5A5A;
constexpr uint32_t kBitBefore = 1u << 31;  // of the error word

LiveShape ShapeOf(const Launch& launch) {
  return {.m_source = launch.live.m_source,
          .capacity_rows = launch.live.capacity_rows,
          .groups = launch.live.group_count,
          .n = launch.live.n,
          .k = launch.live.k};
}

template <class I, int kKept>
void RunCta(const Launch& launch, uint32_t cta, uint32_t* error_word) {
  cuda::emulation::Cta(cta, static_cast<uint32_t>(launch.ctas), I::kThreads, 0).Run([&] {
    __shared__ LiveScratch<I, kKept> scratch;
    if (threadIdx.x == 0) std::memset(&scratch, 0xFF, sizeof(scratch));
    __syncthreads();
    ListFormer<I, kKept>(launch.live, launch.types, launch.tiles_per_cta, scratch,
                         static_cast<int>(threadIdx.x))
        .Form(error_word);
  });
}

// Calls change(cta) before each CTA.
template <class I, int kKept, class Change>
void RunCtas(Launch& launch, Change change) {
  const auto covers = CoverTable(I::kInstance, launch.live.k);
  launch.tiles_per_cta =
      static_cast<int32_t>(MostTilesPerCta(I::kInstance, ShapeOf(launch), launch.ctas));
  TileEntry untouched;
  untouched.width = kUntouched;
  // A list more, which nobody may write.
  launch.lists.assign(
      static_cast<size_t>(launch.ctas + 1) * static_cast<size_t>(launch.tiles_per_cta), untouched);
  launch.live.lists = launch.lists.data();
  launch.live.covers = covers.data();
  launch.live.m_values = launch.values.data();
  launch.error_word = kBitBefore;
  for (int32_t cta = 0; cta < launch.ctas; ++cta) {
    change(cta);
    RunCta<I, kKept>(launch, static_cast<uint32_t>(cta), &launch.error_word);
  }
}

// The groups that the CPU sees, and its error word.
std::vector<GroupProblem> Resolve(const Launch& launch, uint32_t* error) {
  DeviceMProblem problem;
  problem.m_source = launch.live.m_source;
  problem.groups = launch.live.group_count;
  problem.n = launch.live.n;
  problem.k = launch.live.k;
  problem.capacity_rows = launch.live.capacity_rows;
  problem.m_values = launch.values.data();
  problem.c_stride = launch.live.c_stride;
  problem.a = launch.base;
  problem.b = launch.base;
  problem.b_scales = launch.base;
  problem.c = const_cast<uint8_t*>(launch.base);
  std::vector<GroupProblem> groups(static_cast<size_t>(problem.groups));
  cpu::ResolveDeviceM(problem, launch.types, groups, error);
  return groups;
}

// Bytes from the base of the operand.
int64_t Offset(const Launch& launch, const void* at) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) -
                              reinterpret_cast<uintptr_t>(launch.base));
}

int64_t FirstRow(const Launch& launch, const GroupProblem& group) {
  return Offset(launch, group.a) / ActivationBytes(launch.types.a_type, 1, group.k);
}

// Checks a tile against its group, and counts the rows of the strip as covered.
template <class I>
void CheckTile(const Launch& launch, const GroupProblem& group, const TileEntry& tile,
               std::map<std::pair<int32_t, int32_t>, std::vector<uint8_t>>& covered) {
  const LiveM& live = launch.live;
  const int64_t steps = CeilDiv(live.k, kBlockK);
  const int64_t strips = CeilDiv(live.n, kBlockRows);
  ASSERT_GE(tile.width, 0);
  ASSERT_LT(tile.width, I::kWidths);
  ASSERT_GT(tile.rows, 0);
  ASSERT_LE(tile.rows, I::Width(tile.width));
  const int64_t row = tile.token - FirstRow(launch, group);
  ASSERT_GE(row, 0);
  ASSERT_LE(row + tile.rows, group.m);
  EXPECT_EQ(tile.scale_row, tile.token);
  EXPECT_EQ(tile.steps, steps);
  EXPECT_EQ(tile.c_stride, live.c_stride);
  const int32_t column = live.n - tile.columns;
  ASSERT_GE(column, 0);
  ASSERT_LT(column, live.n);
  ASSERT_EQ(column % (kBlockRows * I::kStrips), 0);
  EXPECT_EQ(tile.block, (tile.group * strips + column / kBlockRows) * steps);
  const bool row_major = launch.types.c_layout == OutputLayout::kRowMajor;
  const auto c = Offset(launch, group.c) +
                 (row_major ? row * live.c_stride + column : column * live.c_stride + row) *
                     OutputElementBytes(launch.types.c_type);
  EXPECT_EQ(tile.c, c);
  auto& rows = covered[{tile.group, column}];
  rows.resize(static_cast<size_t>(group.m));
  for (int32_t i = 0; i < tile.rows; ++i) ++rows[static_cast<size_t>(row + i)];
}

template <class I>
void CheckList(const Launch& launch, int32_t cta, const std::vector<GroupProblem>& groups,
               bool widest_first,
               std::map<std::pair<int32_t, int32_t>, std::vector<uint8_t>>& covered,
               int32_t* length) {
  const auto list =
      std::span(launch.lists)
          .subspan(static_cast<size_t>(cta) * static_cast<size_t>(launch.tiles_per_cta),
                   static_cast<size_t>(launch.tiles_per_cta));
  size_t i = 0;
  for (; list[i].width >= 0 && list[i].width != kUntouched; ++i) {
    ASSERT_LT(i + 1, list.size()) << "no end";
    const TileEntry& tile = list[i];
    ASSERT_GE(tile.group, 0);
    ASSERT_LT(tile.group, launch.live.group_count);
    CheckTile<I>(launch, groups[static_cast<size_t>(tile.group)], tile, covered);
    if (testing::Test::HasFatalFailure()) return;
    if (widest_first && i > 0) {
      // Width falling, then groups, strips and rows rising.
      const auto order = [](const TileEntry& t) {
        return std::tuple(-t.width, t.group, -t.columns, t.token);
      };
      EXPECT_LT(order(list[i - 1]), order(tile)) << "entry " << i;
    }
  }
  ASSERT_EQ(list[i].width, -1) << "entry " << i;
  *length = static_cast<int32_t>(i);
  for (++i; i < list.size(); ++i) ASSERT_EQ(list[i].width, kUntouched) << "beyond the end";
}

template <class I, int kKept>
void CheckLaunch(Launch& launch) {
  RunCtas<I, kKept>(launch, [](int32_t) {});
  uint32_t error = kBitBefore;
  const std::vector<GroupProblem> groups = Resolve(launch, &error);
  EXPECT_EQ(launch.error_word, error);
  std::map<std::pair<int32_t, int32_t>, std::vector<uint8_t>> covered;
  int32_t least = std::numeric_limits<int32_t>::max(), most = 0;
  for (int32_t cta = 0; cta < launch.ctas; ++cta) {
    int32_t length = 0;
    CheckList<I>(launch, cta, groups, launch.live.group_count <= kKept, covered, &length);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "CTA " << cta;
    least = std::min(least, length);
    most = std::max(most, length);
  }
  EXPECT_LE(most - least, 1) << "dealt in turn";
  for (const TileEntry& entry :
       std::span(launch.lists).last(static_cast<size_t>(launch.tiles_per_cta))) {
    ASSERT_EQ(entry.width, kUntouched) << "behind all lists";
  }
  size_t strips = 0;
  for (const GroupProblem& group : groups) {
    if (group.m > 0) strips += static_cast<size_t>(CeilDiv(group.n, kBlockRows * I::kStrips));
  }
  EXPECT_EQ(covered.size(), strips);
  for (const auto& [strip, rows] : covered) {
    ASSERT_TRUE(std::ranges::all_of(rows, [](uint8_t count) { return count == 1; }))
        << "group " << strip.first << " column " << strip.second;
  }
}

// Values of a launch; hostile: some are wrong.
void FillValues(Random& random, bool hostile, Launch& launch) {
  const auto capacity = static_cast<int32_t>(launch.live.capacity_rows);
  const auto lie = [&] {
    constexpr int32_t kLies[] = {std::numeric_limits<int32_t>::min(), -1, 0,
                                 std::numeric_limits<int32_t>::max()};
    return random.OneIn(3)   ? capacity + 1
           : random.OneIn(2) ? random.Between(-5, capacity)
                             : kLies[random.Below(4)];
  };
  const int32_t groups = launch.live.group_count;
  launch.values.clear();
  if (launch.live.m_source == MSource::kCounts) {
    const bool full = random.OneIn(4);
    for (int32_t g = 0; g < groups; ++g) {
      launch.values.push_back(full ? capacity : random.OneIn(4) ? 0 : random.Between(0, capacity));
    }
  } else {
    launch.values.push_back(0);
    for (int32_t g = 0; g < groups; ++g) launch.values.push_back(random.Between(0, capacity));
    std::ranges::sort(launch.values);
    launch.values[0] = 0;
    if (random.OneIn(2)) launch.values.back() = capacity;
  }
  if (!hostile) return;
  for (int32_t& value : launch.values) {
    if (random.OneIn(random.OneIn(4) ? 2 : 12)) value = lie();
  }
  if (random.OneIn(2)) launch.values[0] = lie();
}

Launch RandomLaunch(Random& random, MSource source, int32_t groups) {
  Launch launch;
  launch.types.a_type = ActivationType::kFp16;
  launch.types.c_type = random.OneIn(2) ? OutputType::kFp32 : OutputType::kBf16;
  launch.types.c_layout = random.OneIn(2) ? OutputLayout::kColumnMajor : OutputLayout::kRowMajor;
  launch.live.m_source = source;
  launch.live.group_count = groups;
  launch.live.n = random.OneIn(4) ? random.Between(1, 90) : random.Between(1, 700);
  launch.live.k = 32 * random.Between(1, 60);
  launch.live.capacity_rows = source == MSource::kOffsets
                                  ? random.Between(0, groups > 64 ? 4 * groups : 3000)
                                  : random.Between(0, groups > 64 ? 20 : 1500);
  launch.live.c_stride = 4000 + random.Between(0, 9);
  launch.ctas = random.Between(1, 7);
  return launch;
}

constexpr int32_t kGroupCounts[] = {1, 2, 8, 64, 383, 384, 385, 1000};

template <int kIndex>
void CheckInstance() {
  using I = InstanceOf<kIndex>;
  Random random(70 + kIndex);
  for (const int32_t groups : kGroupCounts) {
    for (const MSource source : {MSource::kCounts, MSource::kOffsets}) {
      for (const bool hostile : {false, true}) {
        Launch launch = RandomLaunch(random, source, groups);
        FillValues(random, hostile, launch);
        // All groups in shared memory, and as few as there can be.
        CheckLaunch<I, 3 * I::kThreads>(launch);
        if (groups > I::kThreads) CheckLaunch<I, I::kThreads>(launch);
        if (groups > 2 * I::kThreads) CheckLaunch<I, 2 * I::kThreads>(launch);
        ASSERT_FALSE(testing::Test::HasFailure())
            << I::kInstance.name << ", groups " << groups << ", source " << static_cast<int>(source)
            << ", hostile " << hostile << ", capacity " << launch.live.capacity_rows << ", n "
            << launch.live.n << ", CTAs " << launch.ctas;
      }
    }
  }
}

TEST(LiveListsTest, Mixed) { CheckInstance<0>(); }
TEST(LiveListsTest, Wide) { CheckInstance<1>(); }
TEST(LiveListsTest, Even) { CheckInstance<2>(); }
TEST(LiveListsTest, Prefill) { CheckInstance<3>(); }
TEST(LiveListsTest, Skewed) { CheckInstance<4>(); }
TEST(LiveListsTest, Decode) { CheckInstance<5>(); }
static_assert(std::size(kInstances) == 6);

// Every count at its capacity, and one row a group: what the bound of lists is made of.
TEST(LiveListsTest, TheLongestLists) {
  using I = InstanceOf<4>;
  Random random(81);
  for (const int32_t capacity : {1, 24, 25, 153, 512, 513, 1000}) {
    Launch launch = RandomLaunch(random, MSource::kCounts, 20);
    launch.live.capacity_rows = capacity;
    launch.values.assign(20, capacity);
    CheckLaunch<I, I::kThreads>(launch);
    ASSERT_FALSE(HasFailure()) << capacity;
    launch.live.m_source = MSource::kOffsets;
    launch.values.assign(21, capacity);
    for (int32_t g = 0; g < 20; ++g) launch.values[static_cast<size_t>(g)] = std::min(g, capacity);
    CheckLaunch<I, I::kThreads>(launch);
    ASSERT_FALSE(HasFailure()) << capacity;
  }
}

// Each CTA sees other values: each list is what its values say, and none is too long.
TEST(LiveListsTest, ValuesThatChangeBetweenCtas) {
  using I = InstanceOf<0>;
  Random random(82);
  for (int round = 0; round < 30; ++round) {
    const MSource source = round % 2 == 0 ? MSource::kCounts : MSource::kOffsets;
    Launch launch = RandomLaunch(random, source, random.OneIn(4) ? 500 : random.Between(1, 30));
    std::vector<std::vector<int32_t>> seen;
    FillValues(random, true, launch);
    RunCtas<I, I::kThreads * 2>(launch, [&](int32_t) {
      Launch other = launch;
      FillValues(random, true, other);
      std::ranges::copy(other.values, launch.values.begin());
      seen.push_back(launch.values);
    });
    uint32_t error = kBitBefore;
    for (int32_t cta = 0; cta < launch.ctas; ++cta) {
      launch.values = seen[static_cast<size_t>(cta)];
      const auto groups = Resolve(launch, &error);
      std::map<std::pair<int32_t, int32_t>, std::vector<uint8_t>> covered;
      int32_t length = 0;
      CheckList<I>(launch, cta, groups, true, covered, &length);
      ASSERT_FALSE(HasFailure()) << "round " << round << " CTA " << cta;
    }
    EXPECT_EQ(launch.error_word, error);
  }
}

}  // namespace
}  // namespace tetrad::sm90
