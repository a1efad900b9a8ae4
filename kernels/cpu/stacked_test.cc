// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <climits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cpu/run_groups.h"
#include "kernels/sample.h"

namespace tetrad::cpu {
namespace {

constexpr int32_t kN = 24;
constexpr int32_t kK = 96;

Operands StackOf(const std::vector<int32_t>& m, const ProblemTypes& types) {
  std::vector<GroupShape> shapes;
  for (const int32_t rows : m) shapes.push_back({rows, kN, kK});
  return Operands(
      shapes, {.types = types, .form = GroupForm::kStacked, .row_scales = true, .c_padding = 2});
}

std::vector<ProblemTypes> SomeTypes() {
  return {
      {.a_scale_layout = ScaleLayout::kBlocked, .b_scale_layout = ScaleLayout::kBlocked},
      {.c_type = OutputType::kFp32, .c_layout = OutputLayout::kColumnMajor},
      {.a_type = ActivationType::kBf16, .c_type = OutputType::kBf16},
  };
}

void ExpectSameGroups(std::span<const GroupProblem> actual,
                      std::span<const GroupProblem> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t g = 0; g < actual.size(); ++g) {
    EXPECT_EQ(actual[g].a, expected[g].a) << g;
    EXPECT_EQ(actual[g].a_scales, expected[g].a_scales) << g;
    EXPECT_EQ(actual[g].b, expected[g].b) << g;
    EXPECT_EQ(actual[g].b_scales, expected[g].b_scales) << g;
    EXPECT_EQ(actual[g].c, expected[g].c) << g;
    EXPECT_EQ(actual[g].row_scale, expected[g].row_scale) << g;
    EXPECT_EQ(actual[g].c_stride, expected[g].c_stride) << g;
    EXPECT_EQ(actual[g].m, expected[g].m) << g;
    EXPECT_EQ(actual[g].n, expected[g].n) << g;
    EXPECT_EQ(actual[g].k, expected[g].k) << g;
    EXPECT_EQ(actual[g].alpha, expected[g].alpha) << g;
  }
}

TEST(StackedGroupsTest, GroupsFollowEachOtherAndScalesStartAtRowBlocks) {
  const std::vector<int32_t> m = {5, 0, 130, 128, 1, 0};
  for (const ProblemTypes& types : SomeTypes()) {
    const Operands operands = StackOf(m, types);
    std::vector<GroupProblem> groups(m.size());
    StackedGroups(operands.stack(), types, m, groups);
    ExpectSameGroups(groups, operands.groups());
  }
}

TEST(StackedGroupsTest, MissingAlphaIsOne) {
  const ProblemTypes types;
  const Operands operands = StackOf({3}, types);
  DeviceMProblem base = operands.stack();
  base.alpha = nullptr;
  base.row_scale = nullptr;
  const int32_t m = 3;
  GroupProblem group;
  StackedGroups(base, types, {&m, 1}, {&group, 1});
  EXPECT_EQ(group.alpha, 1.0f);
  EXPECT_EQ(group.row_scale, nullptr);
}

struct DeviceCase {
  const char* what;
  MSource source;
  int64_t capacity;
  std::vector<int32_t> values;
  std::vector<int32_t> live;
  uint32_t error;
};

constexpr uint32_t kBoth = kErrorCountOutOfRange | kErrorOffsetsNotMonotone;

std::vector<DeviceCase> DeviceCases() {
  const MSource counts = MSource::kCounts;
  const MSource offsets = MSource::kOffsets;
  return {
      {"counts within", counts, 10, {10, 0, 3}, {10, 0, 3}, 0},
      {"all empty", counts, 10, {0, 0, 0}, {0, 0, 0}, 0},
      {"count above", counts, 10, {11, 0, 3}, {10, 0, 3}, kErrorCountOutOfRange},
      {"count negative", counts, 10, {2, -1, 3}, {2, 0, 3}, kErrorCountOutOfRange},
      {"extremes", counts, 10, {INT_MIN, INT_MAX, -1}, {0, 10, 0}, kErrorCountOutOfRange},
      {"offsets within", offsets, 30, {0, 4, 4, 19}, {4, 0, 15}, 0},
      {"offsets fill the capacity", offsets, 30, {0, 10, 20, 30}, {10, 10, 10}, 0},
      {"all empty", offsets, 30, {0, 0, 0, 0}, {0, 0, 0}, 0},
      {"last above", offsets, 30, {0, 10, 20, 31}, {10, 10, 10}, kErrorCountOutOfRange},
      {"middle above", offsets, 30, {0, 40, 20, 30}, {30, 0, 0}, kBoth},
      {"falling", offsets, 30, {0, 10, 5, 12}, {10, 0, 2}, kErrorOffsetsNotMonotone},
      {"not from 0", offsets, 30, {2, 10, 12, 12}, {8, 2, 0}, kErrorOffsetsNotMonotone},
      {"negative", offsets, 30, {0, -1, 5, 9}, {0, 5, 4}, kBoth},
      {"extremes", offsets, 30, {INT_MIN, INT_MAX, INT_MIN, 7}, {30, 0, 0}, kBoth},
  };
}

TEST(ResolveDeviceMTest, ClampsHostileValuesAndReportsThem) {
  const ProblemTypes types;
  const Operands operands = StackOf({10, 10, 10}, types);
  for (const DeviceCase& c : DeviceCases()) {
    DeviceMProblem problem = operands.stack();
    problem.m_source = c.source;
    problem.capacity_rows = c.capacity;
    problem.m_values = c.values.data();
    std::vector<GroupProblem> groups(3);
    uint32_t error = 0;
    ResolveDeviceM(problem, types, groups, &error);
    EXPECT_EQ(error, c.error) << c.what;
    int64_t row = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      EXPECT_EQ(groups[g].m, c.live[g]) << c.what << " group " << g;
      row = groups[g].row_scale - problem.row_scale;
      EXPECT_GE(row, 0);
      EXPECT_LE(row + groups[g].m, 30) << c.what;
      EXPECT_EQ(groups[g].a, problem.a + row * kK / 2);
    }
  }
}

TEST(ResolveDeviceMTest, KeepsEarlierErrorBits) {
  const ProblemTypes types;
  const Operands operands = StackOf({4}, types);
  DeviceMProblem problem = operands.stack();
  const int32_t counts[] = {5};
  problem.m_source = MSource::kCounts;
  problem.capacity_rows = 4;
  problem.m_values = counts;
  GroupProblem group;
  uint32_t error = kErrorOffsetsNotMonotone;
  ResolveDeviceM(problem, types, {&group, 1}, &error);
  EXPECT_EQ(error, kBoth);
}

// Offsets: everything follows the live rows.
TEST(ResolveDeviceMTest, OffsetsGiveTheGroupsOfTheLiveRows) {
  const std::vector<int32_t> m = {5, 0, 130, 1};
  const std::vector<int32_t> offsets = {0, 5, 5, 135, 136};
  for (const ProblemTypes& types : SomeTypes()) {
    const Operands operands = StackOf(m, types);
    DeviceMProblem problem = operands.stack();
    problem.m_source = MSource::kOffsets;
    problem.capacity_rows = 136;
    problem.m_values = offsets.data();
    std::vector<GroupProblem> groups(m.size());
    uint32_t error = 0;
    ResolveDeviceM(problem, types, groups, &error);
    EXPECT_EQ(error, 0u);
    ExpectSameGroups(groups, operands.groups());
  }
}

// Counts: groups stay where the capacity puts them; replays with other counts
// compute exactly the live rows and leave the rest alone.
TEST(ResolveDeviceMTest, CountsComputeTheLiveRowsOnly) {
  constexpr int32_t kCapacity = 130;
  for (const ProblemTypes& types : SomeTypes()) {
    Operands operands = StackOf({kCapacity, kCapacity, kCapacity, kCapacity}, types);
    for (const std::vector<int32_t>& counts :
         {std::vector<int32_t>{0, 5, 0, 3}, {7, 0, 1, 0}, {0, 0, 0, 0}, {130, 129, 128, 130}}) {
      std::vector<GroupProblem> expected(operands.groups().begin(), operands.groups().end());
      for (size_t g = 0; g < expected.size(); ++g) expected[g].m = counts[g];
      DeviceMProblem problem = operands.stack();
      problem.m_source = MSource::kCounts;
      problem.capacity_rows = kCapacity;
      problem.m_values = counts.data();
      std::vector<GroupProblem> groups(counts.size());
      uint32_t error = 0;
      ResolveDeviceM(problem, types, groups, &error);
      EXPECT_EQ(error, 0u);
      ExpectSameGroups(groups, expected);
      operands.ClearOutput();
      // Tiles of the capacity, as a fixed launch has them.
      const AlignedBuffer scratch(kScratchBytes);
      for (const Tile& tile : TilesOf(operands.groups(), {64, 16})) {
        RunTile(BestInstructionSet(), types, groups[tile.group], tile, scratch.bytes());
      }
      const Verdict verdict = Verify(types, expected, {});
      EXPECT_TRUE(verdict.pass) << verdict.ToString();
      EXPECT_TRUE(operands.OnlyOutputWritten(expected));
    }
  }
}

}  // namespace
}  // namespace tetrad::cpu
