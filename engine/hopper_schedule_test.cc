// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hopper_schedule.h"

#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/match.h"

#include "engine/plan.h"
#include "kernels/random.h"
#include "kernels/shapes.h"
#include "kernels/sm90/live_tiles.h"

namespace tetrad {
namespace {

constexpr int32_t kMultiprocessors = 132;

DeviceLimits Limits() {
  DeviceLimits limits;
  limits.uuid = "test";
  limits.capability = "sm_90";
  limits.ctas = kMultiprocessors;
  limits.packs_weights = true;
  limits.kernels = {{.name = "packed", .packed_weights = true}, {.name = "plain"}};
  return limits;
}

Signature Packed(std::vector<GroupShape> groups, ActivationType type = ActivationType::kFp16,
                 GroupForm form = GroupForm::kSeparate) {
  Signature s;
  s.types.a_type = type;
  s.types.b_scale_layout = ScaleLayout::kPacked;
  s.form = form;
  s.groups = std::move(groups);
  auto canonical = Canonicalize(std::move(s));
  EXPECT_TRUE(canonical.ok()) << canonical.status();
  return *canonical;
}

Plan PlanOf(const Signature& signature) {
  auto plan = BuildPlan(signature, Limits());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Every row of every strip of every group is in one tile, with the addresses of its group.
void CheckTiles(const Plan& plan) {
  const Signature& s = plan.signature;
  const HopperSchedule& schedule = *plan.hopper;
  const int64_t element = OutputElementBytes(s.types.c_type);
  const bool row_major = s.types.c_layout == OutputLayout::kRowMajor;
  std::vector<uint32_t> first_block;
  uint32_t blocks = 0;
  for (const GroupShape& shape : s.groups) {
    first_block.push_back(blocks);
    blocks += static_cast<uint32_t>(sm90::PackedBlocks(shape.n, shape.k));
  }
  std::map<std::tuple<int32_t, int64_t, int64_t>, int> seen;  // group, column, row
  for (const sm90::TileEntry& tile : schedule.tiles.entries) {
    if (tile.width < 0) continue;
    const auto g = static_cast<size_t>(tile.group);
    const GroupShape& shape = s.groups[g];
    const GroupOffsets& at = plan.layout.groups[g];
    const int64_t row = tile.scale_row - at.row;
    const int64_t column = shape.n - tile.columns;
    ASSERT_GE(row, 0);
    ASSERT_LE(row + tile.rows, shape.m);
    ASSERT_LE(tile.rows, schedule.tiles.instance->widths[tile.width]);
    ASSERT_EQ(tile.steps, CeilDiv(shape.k, 64));
    ASSERT_EQ(tile.block, first_block[g] + column / 128 * tile.steps);
    ASSERT_EQ(tile.c, at.c + element * (row_major ? row * at.c_stride + column
                                                  : column * at.c_stride + row));
    const int64_t first_token =
        schedule.prepared ? at.row : at.a / ActivationBytes(s.types.a_type, 1, shape.k);
    ASSERT_EQ(tile.token, first_token + row);
    ASSERT_LE(tile.token + tile.rows, schedule.rows);
    for (int32_t i = 0; i < tile.rows; ++i) ++seen[{tile.group, column, row + i}];
  }
  int64_t want = 0;
  const int64_t strip = 128 * schedule.tiles.instance->strips;
  for (const GroupShape& shape : s.groups) want += shape.m * CeilDiv(shape.n, strip);
  ASSERT_EQ(static_cast<int64_t>(seen.size()), want);
  for (const auto& [where, times] : seen) ASSERT_EQ(times, 1);
}

TEST(HopperScheduleTest, AStackOf16BitTokensIsReadWhereItLies) {
  for (const ActivationType type : {ActivationType::kFp16, ActivationType::kBf16}) {
    const Plan plan = PlanOf(Packed({kShapeS1.begin(), kShapeS1.end()}, type, GroupForm::kStacked));
    EXPECT_FALSE(plan.hopper->prepared);
    EXPECT_EQ(plan.hopper->token_bytes(), 0);
    EXPECT_EQ(plan.hopper->rows, 1024);
    EXPECT_EQ(plan.hopper->pitch, 7168);
    CheckTiles(plan);
  }
}

TEST(HopperScheduleTest, SoAreGroupsApartIfEachBeginsAtARow) {
  // Groups begin at multiples of 128 bytes: of any row of 64 numbers, but not of 96.
  EXPECT_FALSE(PlanOf(Packed({{3, 8, 64}, {5, 8, 64}})).hopper->prepared);
  const Plan plan = PlanOf(Packed({{3, 8, 96}, {5, 8, 96}}));
  EXPECT_TRUE(plan.hopper->prepared);
  EXPECT_EQ(plan.hopper->prepare.size(), 2u);
  CheckTiles(plan);
  // A group without rows begins wherever.
  EXPECT_FALSE(PlanOf(Packed({{3, 8, 96}, {0, 8, 96}})).hopper->prepared);
}

TEST(HopperScheduleTest, GroupsOfDifferentKAreGathered) {
  const Plan plan = PlanOf(Packed({{3, 8, 128}, {5, 300, 96}, {2, 128, 64}}));
  EXPECT_TRUE(plan.hopper->prepared);
  EXPECT_EQ(plan.hopper->pitch, 128);
  EXPECT_EQ(plan.hopper->rows, 10);
  EXPECT_EQ(plan.hopper->token_bytes(), 10 * 128 * 2);
  ASSERT_EQ(plan.hopper->prepare.size(), 3u);
  EXPECT_EQ(plan.hopper->prepare[1].row, 3);
  EXPECT_EQ(plan.hopper->prepare[1].k, 96);
  EXPECT_EQ(plan.hopper->prepare[1].a, plan.layout.groups[1].a);
  CheckTiles(plan);
}

TEST(HopperScheduleTest, AGroupWithoutRowsDecidesNothing) {
  const Plan plan = PlanOf(Packed({{3, 8, 64}, {0, 8, 1 << 20}, {5, 300, 64}}));
  EXPECT_FALSE(plan.hopper->prepared);
  EXPECT_EQ(plan.hopper->pitch, 64);
  CheckTiles(plan);
}

TEST(HopperScheduleTest, Nvfp4IsExpandedAndGroupsThatFollowEachOtherAreOne) {
  const std::vector<GroupShape> groups = {{3, 8, 128}, {0, 8, 128}, {5, 8, 128}};
  Signature s = Packed(groups, ActivationType::kNvfp4, GroupForm::kStacked);
  EXPECT_EQ(PlanOf(s).hopper->prepare.size(), 1u);
  s.types.a_scale_layout = ScaleLayout::kBlocked;  // each group's scales begin at a block of rows
  const Plan blocked = PlanOf(s);
  ASSERT_EQ(blocked.hopper->prepare.size(), 2u);
  EXPECT_EQ(blocked.hopper->prepare[1].row, 3);
  EXPECT_EQ(blocked.hopper->prepare[1].a_scales, 128 * 128 / 16);
  CheckTiles(blocked);
}

TEST(HopperScheduleTest, NothingToComputeIsNoTiles) {
  for (const ActivationType type : {ActivationType::kNvfp4, ActivationType::kFp16}) {
    const Plan plan = PlanOf(Packed({{0, 8, 64}, {0, 8, 64}}, type));
    EXPECT_EQ(plan.ctas(), 0);
    EXPECT_EQ(plan.tiles(), 0);
    EXPECT_EQ(plan.balance(), 1);
    EXPECT_EQ(plan.hopper->rows, 0);
  }
}

TEST(HopperScheduleTest, TilesOfRandomSignaturesCoverThem) {
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<GroupShape> groups;
    const bool stacked = random.Next() % 2 == 0;
    for (uint64_t g = 1 + random.Next() % 6; g > 0; --g) {
      groups.push_back({static_cast<int32_t>(random.Next() % 300),
                        static_cast<int32_t>(1 + random.Next() % 400),
                        static_cast<int32_t>(32 * (1 + random.Next() % 8))});
      if (stacked) groups.back().n = groups[0].n, groups.back().k = groups[0].k;
    }
    Signature s = Packed(groups, static_cast<ActivationType>(random.Next() % 3),
                         stacked ? GroupForm::kStacked : GroupForm::kSeparate);
    s.types.c_type = static_cast<OutputType>(random.Next() % 3);
    s.types.c_layout = static_cast<OutputLayout>(random.Next() % 2);
    CheckTiles(PlanOf(s));
    if (HasFatalFailure()) return;
  }
}

Signature Live(MSource source, int64_t capacity, ActivationType type = ActivationType::kFp16) {
  Signature s;
  s.types.a_type = type;
  s.types.b_scale_layout = ScaleLayout::kPacked;
  s.form = GroupForm::kStacked;
  s.m_source = source;
  s.capacity_rows = capacity;
  s.groups = {{0, 300, 96}, {0, 300, 96}, {0, 300, 96}};
  return *Canonicalize(s);
}

TEST(HopperScheduleTest, WithLiveRowsCtasGetRoomForTheirLists) {
  for (const MSource source : {MSource::kCounts, MSource::kOffsets}) {
    const Plan plan = PlanOf(Live(source, 40));
    const HopperSchedule& schedule = *plan.hopper;
    const sm90::Instance& instance = *schedule.tiles.instance;
    EXPECT_FALSE(schedule.prepared);
    EXPECT_EQ(schedule.rows, source == MSource::kCounts ? 120 : 40);
    EXPECT_EQ(schedule.live_ctas, kMultiprocessors);
    EXPECT_EQ(schedule.covers.size(), sm90::kCoverRows + 1u);
    EXPECT_EQ(schedule.covers, sm90::CoverTable(instance, 96));
    EXPECT_GE(schedule.tiles_per_cta, 2);
    EXPECT_EQ(schedule.list_bytes(), int64_t{kMultiprocessors} * schedule.tiles_per_cta *
                                         static_cast<int64_t>(sizeof(sm90::TileEntry)));
    const Plan nvfp4 = PlanOf(Live(source, 40, ActivationType::kNvfp4));
    EXPECT_EQ(nvfp4.hopper->token_bytes(), schedule.rows * 96 * 2);
  }
}

TEST(HopperScheduleTest, TheKernelDependsOnTheWeightsAlone) {
  Signature s = Packed({{3, 8, 64}});
  for (const ActivationType type :
       {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    for (const OutputType output : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const OutputLayout layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
        s.types.a_type = type;
        s.types.c_type = output;
        s.types.c_layout = layout;
        s.types.b_scale_layout = ScaleLayout::kPacked;
        EXPECT_EQ(PlanOf(s).kernel, "packed");
        s.types.b_scale_layout = ScaleLayout::kLinear;
        const Plan plain = PlanOf(s);
        EXPECT_EQ(plain.kernel, "plain");
        EXPECT_FALSE(plain.hopper.has_value());
      }
    }
  }
  DeviceLimits limits = Limits();
  limits.kernels.erase(limits.kernels.begin());
  s.types.b_scale_layout = ScaleLayout::kPacked;
  const absl::Status refused = BuildPlan(s, limits).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
}

TEST(HopperScheduleTest, TheExplanationSaysWhatWasChosenAndWhy) {
  const Plan plan = PlanOf(Packed({kShapeD1.begin(), kShapeD1.end()}, ActivationType::kNvfp4));
  EXPECT_TRUE(absl::StrContains(plan.explanation, "packed.decode (widths 8): 128 of 132 CTAs"))
      << plan.explanation;
  EXPECT_TRUE(absl::StrContains(plan.explanation, "tiles 128 x 8")) << plan.explanation;
  EXPECT_TRUE(absl::StrContains(plan.explanation, "expanded before")) << plan.explanation;
  EXPECT_EQ(plan.tiles(), 128);
  EXPECT_EQ(plan.ctas(), 128);
  EXPECT_GT(plan.balance(), 1);
  EXPECT_LT(plan.balance(), 1.05);
  EXPECT_GT(plan.host_bytes(), 128 * static_cast<int64_t>(sizeof(sm90::TileEntry)));
}

}  // namespace
}  // namespace tetrad
