// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/placed_problem.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "kernels/compare.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

constexpr uint64_t kSeed = 7;

SampleOptions OptionsOf(ActivationType type, ScaleLayout layout) {
  SampleOptions options;
  options.types.a_type = type;
  options.types.a_scale_layout = type == ActivationType::kNvfp4 ? layout : ScaleLayout::kLinear;
  options.types.b_scale_layout = layout;
  options.seed = kSeed;
  return options;
}

class PlacedProblemTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CpuDevice::Create({.threads = 1, .measure_rates = false}, [] {});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  std::unique_ptr<CpuDevice> device_;
};

TEST_F(PlacedProblemTest, ARunComputesTheReferenceBitByBit) {
  for (const ActivationType type : {ActivationType::kNvfp4, ActivationType::kBf16}) {
    const SampleOptions options = OptionsOf(type, ScaleLayout::kBlocked);
    const auto problem = PlacedProblem::Place(*device_, device_->limits(), kShapeT2, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const auto completion = (*problem)->Run();
    ASSERT_TRUE(completion.ok()) << completion.status();
    std::vector<std::byte> output;
    ASSERT_TRUE((*problem)->ReadOutput(output).ok());
    const Operands operands(kShapeT2, options);
    for (size_t g = 0; g < std::size(kShapeT2); ++g) {
      const GroupProblem& group = operands.groups()[g];
      const GroupOffsets& at = (*problem)->plan().layout.groups[g];
      ASSERT_EQ(at.c_stride, group.c_stride);
      std::copy_n(output.begin() + at.c, int64_t{group.m} * group.c_stride * 2,
                  static_cast<std::byte*>(group.c));
    }
    const Verdict verdict = Verify(options.types, operands.groups(), {.check = Check::kBits});
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
  }
}

TEST_F(PlacedProblemTest, OtherActivationsGiveOtherOutputsAndTheFirstOnesTheFirst) {
  SampleOptions options = OptionsOf(ActivationType::kNvfp4, ScaleLayout::kLinear);
  const auto problem = PlacedProblem::Place(*device_, device_->limits(), kShapeT1, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  std::vector<std::byte> outputs[3];
  for (const auto& [seed, output] :
       {std::pair(kSeed, &outputs[0]), std::pair(kSeed + 1, &outputs[1]),
        std::pair(kSeed, &outputs[2])}) {
    options.seed = seed;
    const ActivationImage image = SampleActivations((*problem)->plan(), options);
    ASSERT_TRUE((*problem)->WriteActivations(image).ok());
    ASSERT_TRUE((*problem)->Run().ok());
    ASSERT_TRUE((*problem)->ReadOutput(*output).ok());
  }
  EXPECT_NE(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST_F(PlacedProblemTest, StackedAndWithCountsOnTheDeviceTheBitsAreThoseOfGroupsApart) {
  const auto shapes = GroupsOf(64, 128, 5, 3);
  const SampleOptions options = OptionsOf(ActivationType::kFp16, ScaleLayout::kLinear);
  const auto weights =
      PlacedWeights::Place(*device_, device_->limits(), SampleWeights(shapes, options));
  ASSERT_TRUE(weights.ok()) << weights.status();
  Signature signature;
  signature.types = options.types;
  signature.form = GroupForm::kStacked;
  signature.groups.assign(shapes.begin(), shapes.end());
  const auto stacked = PlacedProblem::Place(*device_, device_->limits(), signature, *weights);
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  signature.m_source = MSource::kCounts;
  signature.capacity_rows = 8;
  for (GroupShape& shape : signature.groups) shape.m = 0;
  const auto counted = PlacedProblem::Place(*device_, device_->limits(), signature, *weights);
  ASSERT_TRUE(counted.ok()) << counted.status();

  const ActivationImage dense = SampleActivations((*stacked)->plan(), options);
  ActivationImage reserved{.a = std::vector<std::byte>(2 * 8 * 128 * 2), .m_values = {5, 3}};
  std::copy_n(dense.a.begin(), 5 * 256, reserved.a.begin());
  std::copy_n(dense.a.begin() + 5 * 256, 3 * 256, reserved.a.begin() + 8 * 256);
  ASSERT_TRUE((*stacked)->WriteActivations(dense).ok());
  ASSERT_TRUE((*counted)->WriteActivations(reserved).ok());
  std::vector<std::byte> a, b;
  for (const auto& [problem, output] :
       {std::pair(stacked->get(), &a), std::pair(counted->get(), &b)}) {
    ASSERT_TRUE(problem->Run().ok());
    ASSERT_TRUE(problem->ReadOutput(*output).ok());
  }
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 5 * 128, b.begin()));
  EXPECT_TRUE(std::equal(a.begin() + 5 * 128, a.begin() + 8 * 128, b.begin() + 8 * 128));
  EXPECT_NE(std::vector<std::byte>(5 * 128),
            std::vector<std::byte>(a.begin(), a.begin() + 5 * 128));

  ASSERT_TRUE((*stacked)->ClearOutput().ok());
  ASSERT_TRUE((*stacked)->ReadOutput(b).ok());
  EXPECT_EQ(b, std::vector<std::byte>(a.size()));
}

TEST_F(PlacedProblemTest, ItLeavesNothingBehind) {
  {
    const auto problem =
        PlacedProblem::Place(*device_, device_->limits(), kShapeT1,
                             OptionsOf(ActivationType::kNvfp4, ScaleLayout::kLinear));
    ASSERT_TRUE(problem.ok()) << problem.status();
    EXPECT_GT(device_->memory_use().allocations, 0);
  }
  EXPECT_EQ(device_->memory_use().allocations, 0);
  EXPECT_EQ(device_->memory_use().allocated_bytes, 0);
}

}  // namespace
}  // namespace tetrad::bars
