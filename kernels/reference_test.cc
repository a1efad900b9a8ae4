// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/float16.h"
#include "kernels/sample.h"

namespace tetrad {
namespace {

// Worked by hand: A = {1, -2, 0.5, 0 ...} with scale 2 in block 0 and 6 at k = 16
// with scale 0.5; B = {3, 1, 4, ...} with scale 1.5 and 1.5 at k = 16 with scale 448.
TEST(ReferenceTest, KnownElement) {
  uint8_t a[16] = {0xC2, 0x01, 0, 0, 0, 0, 0, 0, 0x07};
  uint8_t b[16] = {0x25, 0x06, 0, 0, 0, 0, 0, 0, 0x03};
  const uint8_t a_scales[2] = {0x40, 0x30};
  const uint8_t b_scales[2] = {0x3C, 0x7E};
  const float row_scale[1] = {0.5f};
  const GroupProblem group{.a = a,
                           .a_scales = a_scales,
                           .b = b,
                           .b_scales = b_scales,
                           .row_scale = row_scale,
                           .m = 1,
                           .n = 1,
                           .k = 32,
                           .alpha = 4};
  const ReferenceBlock block =
      ComputeReference({.c_type = OutputType::kFp32}, group, {0, 0, 1, 0, 1}, WithMagnitude::kYes);
  // 2*1 * 4.5 - 2*2 * 1.5 + 2*.5 * 6 + .5*6 * 448*1.5
  const double sum = 9 - 6 + 6 + 2016;
  EXPECT_EQ(block.sum[0], sum);
  EXPECT_EQ(block.magnitude[0], 9 + 6 + 6 + 2016);
  EXPECT_EQ(block.bits[0], std::bit_cast<uint32_t>(static_cast<float>(sum * 2)));
}

TEST(ReferenceTest, EpilogueRoundsTwiceInItsOrder) {
  // In any other order, or rounded once, the result is 0x1.fff3e8p1.
  const float row_scale[] = {0x1.a0a9fcp0f};
  const GroupProblem group{.row_scale = row_scale, .alpha = 0x1.4faa28p0f};
  EXPECT_EQ(ScaledValue(group, 0, 0x1.dfc964p0f), 0x1.fff3e6p1f);
}

TEST(ReferenceTest, OutputBitsAreCanonical) {
  const float nan = std::bit_cast<float>(0xFFC00001u);
  EXPECT_EQ(OutputBits(OutputType::kFp16, nan), kCanonicalNanFp16);
  EXPECT_EQ(OutputBits(OutputType::kBf16, nan), kCanonicalNanBf16);
  EXPECT_EQ(OutputBits(OutputType::kFp32, nan), kCanonicalNanFp32);
  EXPECT_EQ(OutputBits(OutputType::kFp16, 65520.0f), 0x7C00u);
  EXPECT_EQ(OutputBits(OutputType::kFp32, -2.0f), 0xC0000000u);
  for (const auto type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
    EXPECT_EQ(OutputValue(type, OutputBits(type, 1.5f)), 1.5f);
  }
}

// A part of the output is the same part of the whole.
TEST(ReferenceTest, BlocksAgreeWithTheWhole) {
  constexpr GroupShape kShapes[] = {{13, 21, 160}};
  for (const auto a_type : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    const SampleOptions options{.types = {.a_type = a_type}, .kind = DataKind::kGeneral};
    const Operands operands(kShapes, options);
    const GroupProblem& group = operands.groups()[0];
    const ReferenceBlock whole =
        ComputeReference(options.types, group, {0, 0, 13, 0, 21}, WithMagnitude::kYes);
    const ReferenceBlock part =
        ComputeReference(options.types, group, {0, 4, 5, 3, 11}, WithMagnitude::kYes);
    for (int row = 0; row < 5; ++row) {
      for (int column = 0; column < 11; ++column) {
        const size_t in_part = row * 11 + column;
        const size_t in_whole = (row + 4) * 21 + column + 3;
        EXPECT_EQ(part.sum[in_part], whole.sum[in_whole]);
        EXPECT_EQ(part.magnitude[in_part], whole.magnitude[in_whole]);
        EXPECT_EQ(part.bits[in_part], whole.bits[in_whole]);
      }
    }
  }
}

TEST(ReferenceTest, NanScaleGivesCanonicalNanEvenAgainstZeros) {
  uint8_t a[16] = {};
  uint8_t b[16] = {};
  const uint8_t a_scales[2] = {0x38, 0xFF};
  const uint8_t b_scales[2] = {0x38, 0x38};
  const GroupProblem group{
      .a = a, .a_scales = a_scales, .b = b, .b_scales = b_scales, .m = 1, .n = 1, .k = 32};
  const ReferenceBlock block = ComputeReference({}, group, {0, 0, 1, 0, 1}, WithMagnitude::kNo);
  EXPECT_EQ(block.bits[0], kCanonicalNanFp16);
}

}  // namespace
}  // namespace tetrad
