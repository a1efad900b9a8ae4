// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper GEMM's epilogue, every instance and output: factors and tokens at the ends of
// their range; and the time that a launch notes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/float16.h"
#include "kernels/sm90/gemm_gpu_test.h"

namespace tetrad::sm90 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_F(Sm90GemmGpuTest, AnyAlpha) {
  const float alphas[] = {0x1p119f,  -0x1.8p120f, 0x1p121f,     0x1.FFFFFEp127f,
                          0x1p-149f, -0x1p-126f,  0x1.8p-140f,  0.0f,
                          -0.0f,     -kInfinity,  std::nanf("")};
  for (const ActivationType a : kActivations) {
    for (const Output& output : kOutputs) {
      for (const bool row_scales : {false, true}) {
        Operands operands(
            GroupsOf(133, 96, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9),
            {.types = TypesOf(a, output), .form = GroupForm::kStacked, .row_scales = row_scales});
        std::vector<GroupProblem> groups = Copy(operands);
        for (size_t g = 0; g < groups.size(); ++g) groups[g].alpha = alphas[g];
        ExpectEveryCutPasses(operands, groups, "alpha");
      }
    }
  }
}

TEST_F(Sm90GemmGpuTest, AnyRowScale) {
  const float scales[] = {0x1p-149f, -1e-38f,   1e38f,         -1.0f / 3, 0.0f,
                          -0.0f,     kInfinity, std::nanf(""), 0x1p127f};
  for (const ActivationType a : kActivations) {
    for (const Output& output : kOutputs) {
      Operands operands(
          GroupsOf(37, 96, 9, 11),
          {.types = TypesOf(a, output), .form = GroupForm::kStacked, .row_scales = true});
      auto* const row_scale = const_cast<float*>(operands.stack().row_scale);
      for (size_t row = 0; row < 20; ++row) row_scale[row] = scales[row % std::size(scales)];
      ExpectEveryCutPasses(operands, operands.groups(), "row scales");
    }
  }
}

// The tokens of a stack of groups with FP16 or BF16 ones.
uint16_t* TokensOf(const Operands& operands) {
  return reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(operands.stack().a));
}

// One product a sum, of BF16 tokens so large that the sum is infinite on every backend, or
// just not: infinity then, even if alpha would bring it back.
TEST_F(Sm90GemmGpuTest, SumsBeyondFp32AreInfinite) {
  constexpr int32_t kK = 96;
  for (const Output& output : kOutputs) {
    Operands operands(GroupsOf(133, kK, 16, 16, 16, 16, 16),
                      {.types = TypesOf(ActivationType::kBf16, output),
                       .kind = DataKind::kContest,
                       .form = GroupForm::kStacked});
    for (int row = 0; row < 80; ++row) {
      uint16_t* const tokens = TokensOf(operands) + row * kK;
      std::fill_n(tokens, kK, 0);
      // 1.0 or 1.9921875 times 2^120 to 2^127.
      tokens[row % kK] = EncodeBf16(std::ldexp(row % 2 == 0 ? 1.0f : -0x1.FEp0f, 120 + row % 8));
    }
    const float alphas[] = {1.0f, -0x1p-20f, 0x1p-120f, 0x1p-149f, 0.0f};
    std::vector<GroupProblem> groups = Copy(operands);
    for (size_t g = 0; g < groups.size(); ++g) groups[g].alpha = alphas[g];
    ExpectEveryCutPasses(operands, groups, "large sums");
  }
}

TEST_F(Sm90GemmGpuTest, InfinitiesNansAndSignedZerosOfTokensGoThrough) {
  constexpr int32_t kK = 96;
  for (const ActivationType a : kActivations) {
    const uint16_t infinity = a == ActivationType::kFp16 ? 0x7C00 : 0x7F80;
    for (const Output& output : kOutputs) {
      Operands operands(GroupsOf(133, kK, 11, 9), {.types = TypesOf(a, output),
                                                   .kind = DataKind::kContest,
                                                   .form = GroupForm::kStacked,
                                                   .row_scales = true});
      uint16_t* const tokens = TokensOf(operands);
      tokens[3 * kK + 5] = infinity;
      tokens[4 * kK + 95] = infinity | 0x8000;
      tokens[5 * kK] = infinity | 1;
      tokens[15 * kK + 40] = infinity | 0x8155;
      std::fill_n(tokens + 6 * kK, kK, 0x8000);
      ExpectEveryCutPasses(operands, operands.groups(), "infinities");
    }
  }
}

// By the launch that is told to, with tiles or without.
TEST_F(Sm90GemmGpuTest, BeginOfALaunchIsNoted) {
  for (const ActivationType a : kActivations) {
    for (const int32_t m : {40, 0}) {
      Operands operands(GroupsOf(200, 96, 40, 7),
                        {.types = {.a_type = a}, .form = GroupForm::kStacked});
      std::vector<GroupProblem> groups = Copy(operands);
      for (GroupProblem& group : groups) group.m = std::min(group.m, m);
      Place(operands);
      uint64_t last = 0;
      for (const Instance& instance : kInstances) {
        Run(groups, {.instance = &instance}, true);
        const cuda::LaunchState state = ReadState();
        EXPECT_GT(state.begun_ns, last) << instance.name << " m " << m;
        EXPECT_EQ(state.launches, 0u);
        EXPECT_EQ(state.error_word, 0u);
        last = state.begun_ns;
        Run(groups, {.instance = &instance}, false);
        EXPECT_EQ(ReadState().begun_ns, last) << instance.name << " m " << m;
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90
