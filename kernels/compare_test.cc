// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/compare.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/run_groups.h"
#include "kernels/sample.h"

namespace tetrad {
namespace {

constexpr GroupShape kShapes[] = {{24, 40, 512}, {9, 33, 512}};

Operands Computed(const ProblemTypes& types, DataKind kind) {
  Operands operands(kShapes, {.types = types, .kind = kind});
  cpu::RunGroups(cpu::BestInstructionSet(), types, operands.groups(), {});
  return operands;
}

void* At(const ProblemTypes& types, const GroupProblem& group, int row, int column) {
  return static_cast<std::byte*>(group.c) +
         (row * group.c_stride + column) * OutputElementBytes(types.c_type);
}
void XorBits(const ProblemTypes& types, const GroupProblem& group, int row, int column,
             uint32_t mask) {
  uint32_t bits = LoadOutput(types, group, row, column) ^ mask;
  std::memcpy(At(types, group, row, column), &bits,
              static_cast<size_t>(OutputElementBytes(types.c_type)));
}

TEST(CompareTest, OneWrongBitInExactDataIsFoundAndLocated) {
  for (const auto c_type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
    const ProblemTypes types{.c_type = c_type};
    const Operands operands = Computed(types, DataKind::kExact);
    EXPECT_TRUE(Verify(types, operands.groups(), {}).pass);
    XorBits(types, operands.groups()[1], 7, 31, 1);
    const Verdict verdict = Verify(types, operands.groups(), {.threads = 3});
    EXPECT_FALSE(verdict.pass);
    EXPECT_EQ(verdict.failures, 1);
    EXPECT_EQ(verdict.elements, 24 * 40 + 9 * 33);
    EXPECT_EQ(verdict.group, 1);
    EXPECT_EQ(verdict.row, 7);
    EXPECT_EQ(verdict.column, 31);
    EXPECT_EQ(verdict.expected_bits ^ verdict.actual_bits, 1u);
    EXPECT_THAT(verdict.ToString(), testing::HasSubstr("group 1 row 7 column 31"));
  }
}

TEST(CompareTest, ZerosOfEitherSignAreEqual) {
  uint8_t zeros[16] = {};
  const uint8_t scales[2] = {0x38, 0x38};
  for (const auto c_type : {OutputType::kFp16, OutputType::kFp32}) {
    float c = -0.0f;
    const uint16_t half = 0x8000;
    if (c_type == OutputType::kFp16) std::memcpy(&c, &half, sizeof(half));
    const ProblemTypes types{.c_type = c_type};
    const GroupProblem group{.a = zeros,
                             .a_scales = scales,
                             .b = zeros,
                             .b_scales = scales,
                             .c = &c,
                             .c_stride = 1,
                             .m = 1,
                             .n = 1,
                             .k = 32};
    EXPECT_TRUE(Verify(types, {&group, 1}, {}).pass);
  }
}

TEST(CompareTest, GeneralDataWithinItsBoundsPassesOnEveryType) {
  for (const auto c_type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
    const ProblemTypes types{.c_type = c_type};
    for (const DataKind kind : {DataKind::kGeneral, DataKind::kNormal}) {
      const Operands operands = Computed(types, kind);
      const Verdict verdict = Verify(types, operands.groups(), {.check = Check::kBound});
      EXPECT_TRUE(verdict.pass) << verdict.ToString();
      EXPECT_GT(verdict.frobenius_ratio, 0.5) << "a ratio that is computed";
      EXPECT_LT(verdict.worst, 1);
    }
  }
}

TEST(CompareTest, OneElementOutOfBoundsFailsGeneralData) {
  const ProblemTypes types{.c_type = OutputType::kFp32};
  const Operands operands = Computed(types, DataKind::kNormal);
  XorBits(types, operands.groups()[0], 3, 4, 1u << 20);
  const Verdict verdict = Verify(types, operands.groups(), {.check = Check::kBound});
  EXPECT_FALSE(verdict.pass);
  EXPECT_EQ(verdict.failures, 1);
  EXPECT_EQ(verdict.row, 3);
  EXPECT_EQ(verdict.column, 4);
}

// Errors far inside the worst case of accumulation, but in every element: one
// product less in each. Only the Frobenius condition sees them.
TEST(CompareTest, ADroppedProductInEveryElementFailsGeneralData) {
  const ProblemTypes types;
  const GroupShape shape{64, 96, 7168};
  Operands operands({&shape, 1}, {.types = types, .kind = DataKind::kNormal});
  const GroupProblem& group = operands.groups()[0];
  auto* b = const_cast<uint8_t*>(group.b);
  std::vector<uint8_t> kept;
  for (int32_t row = 0; row < group.n; ++row) {
    uint8_t& pair = b[row * (group.k / 2)];
    kept.push_back(pair);
    pair &= 0xF0;
  }
  cpu::RunGroups(cpu::BestInstructionSet(), types, operands.groups(), {});
  for (int32_t row = 0; row < group.n; ++row) b[row * (group.k / 2)] = kept[row];
  const Verdict verdict =
      Verify(types, operands.groups(),
             {.check = Check::kBound, .accumulator = Accumulator::kTensorCore, .threads = 2});
  EXPECT_FALSE(verdict.pass);
  EXPECT_GT(verdict.frobenius_ratio, verdict.frobenius_limit);
}

TEST(CompareTest, InfinityAndNanAreJudged) {
  const ProblemTypes types;
  const Operands operands = Computed(types, DataKind::kGeneral);
  const GroupProblem& group = operands.groups()[0];
  const VerifyOptions options{.check = Check::kBound};
  for (const uint16_t wrong : {uint16_t{0x7C00}, kCanonicalNanFp16}) {
    const uint32_t right = LoadOutput(types, group, 0, 0);
    std::memcpy(At(types, group, 0, 0), &wrong, sizeof(wrong));
    EXPECT_FALSE(Verify(types, operands.groups(), options).pass);
    std::memcpy(At(types, group, 0, 0), &right, sizeof(wrong));
  }
  EXPECT_TRUE(Verify(types, operands.groups(), options).pass);

  // Where the exact result overflows, infinity of its sign is the right answer.
  std::vector<GroupProblem> huge(operands.groups().begin(), operands.groups().end());
  for (GroupProblem& problem : huge) problem.alpha *= 1e6f;
  cpu::RunGroups(cpu::BestInstructionSet(), types, huge, {});
  EXPECT_TRUE(Verify(types, huge, options).pass);
  const uint16_t flipped = static_cast<uint16_t>(LoadOutput(types, huge[0], 1, 1) ^ 0x8000);
  std::memcpy(At(types, huge[0], 1, 1), &flipped, sizeof(flipped));
  EXPECT_FALSE(Verify(types, huge, options).pass);
}

TEST(CompareTest, OnlyTheCanonicalNanIsRight) {
  const uint8_t codes[16] = {};
  const uint8_t ones[2] = {0x38, 0x38}, nans[2] = {kUe4m3Nan, 0x38};
  const ProblemTypes types;
  uint16_t c = 0;
  const GroupProblem group{.a = codes,
                           .a_scales = nans,
                           .b = codes,
                           .b_scales = ones,
                           .c = &c,
                           .c_stride = 1,
                           .m = 1,
                           .n = 1,
                           .k = 32};
  for (const Check check : {Check::kBits, Check::kBound}) {
    for (const uint16_t bits :
         {kCanonicalNanFp16, uint16_t{0xFFFF}, uint16_t{0x7E00}, uint16_t{0x7C00}}) {
      c = bits;
      EXPECT_EQ(Verify(types, {&group, 1}, {.check = check}).pass, bits == kCanonicalNanFp16)
          << bits;
    }
  }
}

TEST(CompareTest, SamplingLooksAtThePlannedShareAndAlwaysTheLastTile) {
  const ProblemTypes types;
  const Operands operands = Computed(types, DataKind::kExact);
  const VerifyOptions options{.max_products = 200'000};
  const Verdict sampled = Verify(types, operands.groups(), options);
  EXPECT_TRUE(sampled.pass);
  EXPECT_LT(sampled.elements, 24 * 40 + 9 * 33);
  XorBits(types, operands.groups()[1], 8, 32, 1);
  EXPECT_FALSE(Verify(types, operands.groups(), options).pass);
}

TEST(CompareTest, NothingToCompareIsNotAFailure) {
  const GroupProblem empty{.n = 4, .k = 32};
  EXPECT_TRUE(Verify({}, {&empty, 1}, {}).pass);
  EXPECT_EQ(Verify({}, {&empty, 1}, {}).elements, 0);
}

}  // namespace
}  // namespace tetrad
