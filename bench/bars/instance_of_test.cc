// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/instance_of.h"

#include <map>

#include <gtest/gtest.h>

#include "bench/bars/draw_sm90.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kMultiprocessors = 132;

DeviceLimits HopperLimits() {
  DeviceLimits limits{.uuid = "GPU-x", .capability = "sm_90", .ctas = kMultiprocessors};
  limits.kernels.push_back({.name = "cuda.sm90", .packed_weights = true});
  return limits;
}

Signature SignatureOf(const cli::GroupedCase& c) {
  Signature signature;
  signature.types = c.types;
  signature.types.b_scale_layout = ScaleLayout::kPacked;
  signature.form = c.form;
  signature.m_source = c.m_source;
  signature.row_scale = c.row_scale;
  signature.c_stride = c.c_stride;
  signature.capacity_rows = c.capacity_rows;
  signature.device = "GPU-x";
  for (const cli::CaseGroup& g : c.groups) {
    signature.groups.push_back({c.m_source == MSource::kHost ? g.m : 0, g.n, g.k});
  }
  return signature;
}

absl::StatusOr<Plan> PlanOf(Signature signature) {
  auto canonical = Canonicalize(std::move(signature));
  if (!canonical.ok()) return canonical.status();
  return BuildPlan(*canonical, HopperLimits());
}

TEST(DrawSm90Test, ThePlannerChoosesEveryVariantOftenEnough) {
  std::map<std::string, int> drawn;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const auto plan = PlanOf(SignatureOf(DrawSm90Case(seed)));
    ASSERT_TRUE(plan.ok()) << seed << ": " << plan.status();
    ++drawn[VariantOf(*plan)];
  }
  for (const std::string& variant : AllVariants()) EXPECT_GE(drawn[variant], 50) << variant;
  EXPECT_EQ(drawn.size(), AllVariants().size());
}

TEST(InstanceOfTest, TheChosenInstanceUsedAgainGivesTheSamePlan) {
  for (const MSource source : {MSource::kHost, MSource::kCounts}) {
    Signature signature;
    signature.types.a_type = ActivationType::kBf16;
    signature.types.b_scale_layout = ScaleLayout::kPacked;
    signature.form = GroupForm::kStacked;
    signature.m_source = source;
    signature.groups.assign(kShapeS4.begin(), kShapeS4.end());
    signature.device = "GPU-x";
    if (source == MSource::kCounts) {
      signature.capacity_rows = 512;
      for (GroupShape& group : signature.groups) group.m = 0;
    }
    const auto plan = PlanOf(signature);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Plan again = *plan;
    UseInstance(*plan->hopper->tiles.instance, kMultiprocessors, again);
    EXPECT_EQ(VariantOf(again), VariantOf(*plan));
    EXPECT_EQ(again.hopper->tiles_per_cta, plan->hopper->tiles_per_cta);
    EXPECT_EQ(again.hopper->covers, plan->hopper->covers);
    ASSERT_EQ(again.hopper->tiles.entries.size(), plan->hopper->tiles.entries.size());
    for (size_t i = 0; i < again.hopper->tiles.entries.size(); ++i) {
      const sm90::TileEntry& a = again.hopper->tiles.entries[i];
      const sm90::TileEntry& b = plan->hopper->tiles.entries[i];
      EXPECT_EQ(a.token, b.token);
      EXPECT_EQ(a.block, b.block);
      EXPECT_EQ(a.c, b.c);
    }
    for (const sm90::Instance& instance : sm90::kInstances) {
      UseInstance(instance, kMultiprocessors, again);
      EXPECT_EQ(VariantOf(again), std::string("bf16.") + instance.name);
    }
  }
}

}  // namespace
}  // namespace tetrad::bars
