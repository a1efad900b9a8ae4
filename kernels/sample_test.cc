// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample.h"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "kernels/exactness.h"
#include "kernels/reference.h"
#include "kernels/shapes.h"

namespace tetrad {
namespace {

constexpr GroupShape kShapes[] = {{40, 48, 512}, {0, 8, 32}, {3, 130, 96}};

uint64_t Hash(const void* data, int64_t bytes, uint64_t hash) {
  for (int64_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  }
  return hash;
}

uint64_t HashOf(const Operands& operands) {
  const ProblemTypes& types = operands.types();
  uint64_t hash = 0xCBF29CE484222325u;
  for (const GroupProblem& group : operands.groups()) {
    hash = Hash(group.a, ActivationBytes(types.a_type, group.m, group.k), hash);
    if (group.a_scales != nullptr) {
      hash = Hash(group.a_scales, ScalePlaneBytes(types.a_scale_layout, group.m, group.k), hash);
    }
    hash = Hash(group.b, CodeBytes(group.n, group.k), hash);
    hash = Hash(group.b_scales, ScalePlaneBytes(types.b_scale_layout, group.n, group.k), hash);
    if (group.row_scale != nullptr) hash = Hash(group.row_scale, group.m * 4, hash);
    hash = Hash(&group.alpha, sizeof(group.alpha), hash);
  }
  return hash;
}

TEST(SampleTest, ASeedMeansTheSameBytesEverywhere) {
  const ProblemTypes nvfp4{.a_scale_layout = ScaleLayout::kBlocked};
  const ProblemTypes bf16{.a_type = ActivationType::kBf16, .c_type = OutputType::kFp32};
  const auto hash = [](const ProblemTypes& types, DataKind kind, uint64_t seed) {
    return HashOf(
        Operands(kShapes, {.types = types, .kind = kind, .row_scales = true, .seed = seed}));
  };
  EXPECT_EQ(hash(nvfp4, DataKind::kContest, 1), 11023003435312262982u);
  EXPECT_EQ(hash(nvfp4, DataKind::kExact, 1), 5503392576804884056u);
  EXPECT_EQ(hash(nvfp4, DataKind::kGeneral, 1), 14847213944054957105u);
  EXPECT_EQ(hash(nvfp4, DataKind::kNormal, 1), 5692028520732731671u);
  EXPECT_EQ(hash(bf16, DataKind::kExact, 1), 10689950624052407767u);
  EXPECT_NE(hash(bf16, DataKind::kExact, 1), hash(bf16, DataKind::kExact, 2));
}

TEST(SampleTest, ContestDataHasItsFewValues) {
  const Operands operands(kShapes, {.kind = DataKind::kContest});
  std::set<int> codes;
  std::set<int> scales;
  for (const GroupProblem& group : operands.groups()) {
    for (int64_t i = 0; i < CodeBytes(group.n, group.k); ++i) codes.insert(group.b[i]);
    for (int64_t i = 0; i < group.n * group.k / 16; ++i) scales.insert(group.b_scales[i]);
    EXPECT_EQ(group.alpha, 1.0f);
  }
  for (const int code : codes) EXPECT_EQ(code & 0x44, 0);
  EXPECT_EQ(codes.size(), 64u);
  EXPECT_EQ(scales, (std::set<int>{0x38, 0x40}));
}

TEST(SampleTest, ExactDataCoversAllCodesAndManyScales) {
  const GroupShape shape{256, 256, 1024};
  const Operands operands({&shape, 1}, {.types = {.c_type = OutputType::kFp32}});
  const GroupProblem& group = operands.groups()[0];
  std::set<int> codes;
  std::set<int> scales;
  for (int64_t i = 0; i < CodeBytes(group.n, group.k); ++i) codes.insert(group.b[i]);
  for (int64_t i = 0; i < group.n * group.k / 16; ++i) scales.insert(group.b_scales[i]);
  EXPECT_EQ(codes.size(), 256u);
  EXPECT_EQ(scales.size(), 126u) << "every scale but 0 and NaN";
  EXPECT_EQ(scales.count(0) + scales.count(0x7F), 0u);
}

TEST(SampleTest, ExactKindsAreExactAndDoNotOverflow) {
  for (const auto a_type : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    for (const auto c_type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const DataKind kind : {DataKind::kContest, DataKind::kExact}) {
        for (const int32_t k : {32, 512, 7168}) {
          const GroupShape shape{30, 40, k};
          const ProblemTypes types{.a_type = a_type, .c_type = c_type};
          const Operands operands(
              {&shape, 1},
              {.types = types, .kind = kind, .row_scales = true, .seed = static_cast<uint64_t>(k)});
          const absl::Status status = CheckExact(types, operands.groups()[0]);
          EXPECT_TRUE(status.ok()) << status << " k " << k;
        }
      }
    }
  }
}

TEST(SampleTest, TheExactnessCheckCanFail) {
  const GroupShape shape{30, 40, 7168};
  const ProblemTypes types;
  const Operands general({&shape, 1}, {.types = types, .kind = DataKind::kGeneral});
  EXPECT_FALSE(CheckExact(types, general.groups()[0]).ok());
  const Operands exact({&shape, 1}, {.types = types});
  GroupProblem loud = exact.groups()[0];
  loud.alpha *= 4;
  EXPECT_FALSE(CheckExact(types, loud).ok());
}

// Exact data must still be worth multiplying: most outputs are not zero.
TEST(SampleTest, ExactDataIsNotEmpty) {
  for (const auto a_type : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    const GroupShape shape{30, 40, 7168};
    const ProblemTypes types{.a_type = a_type};
    const Operands operands({&shape, 1}, {.types = types});
    const ReferenceBlock block =
        ComputeReference(types, operands.groups()[0], {0, 0, 30, 0, 40}, WithMagnitude::kNo);
    int64_t zeros = 0;
    for (const uint32_t bits : block.bits) zeros += (bits & 0x7FFF) == 0;
    EXPECT_LT(zeros, 60) << static_cast<int>(a_type);
  }
}

TEST(SampleTest, PaddingOfBlockedPlanesIsJunkWithNans) {
  const GroupShape shape{5, 8, 96};
  const Operands operands({&shape, 1}, {.types = {.a_scale_layout = ScaleLayout::kBlocked}});
  const GroupProblem& group = operands.groups()[0];
  std::set<int64_t> live;
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t block = 0; block < 6; ++block) live.insert(BlockedScaleOffset(row, block, 96));
  }
  int nans = 0;
  for (int64_t i = 0; i < ScalePlaneBytes(ScaleLayout::kBlocked, 5, 96); ++i) {
    if (live.count(i) == 0 && group.a_scales[i] == kUe4m3Nan) ++nans;
  }
  EXPECT_GT(nans, 100);
}

TEST(SampleTest, StraysIntoMarginsAndGapsAreSeen) {
  for (const auto layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
    for (const auto form : {GroupForm::kSeparate, GroupForm::kStacked}) {
      constexpr GroupShape kSame[] = {{4, 6, 32}, {3, 6, 32}};
      Operands operands(kSame, {.types = {.c_layout = layout}, .form = form, .c_padding = 2});
      EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups()));
      const GroupProblem& first = operands.groups()[0];
      auto* c = static_cast<uint16_t*>(first.c);
      c[0] = 1;
      EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups()));
      const int64_t line = layout == OutputLayout::kRowMajor ? 6
                           : form == GroupForm::kStacked     ? 7
                                                             : 4;
      for (const int64_t stray : {int64_t{-1}, line, first.c_stride - 1}) {
        operands.ClearOutput();
        c[stray] = 1;
        EXPECT_FALSE(operands.OnlyOutputWritten(operands.groups())) << stray;
      }
    }
  }
}

TEST(SampleTest, NamedShapesAreWhatTheyAreQuotedFor) {
  const auto rows = [](const NamedShape& shape) {
    int64_t sum = 0;
    for (const GroupShape& group : shape.groups) sum += group.m;
    return sum;
  };
  constexpr int64_t kBenchmarkRows[] = {1024, 1024, 512, 512};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rows(kBenchmarkShapes[i]), kBenchmarkRows[i]);
  EXPECT_EQ(std::size(kTestShapes), 10u);
  EXPECT_EQ(rows(kDecodeShapes[0]), 64);
  EXPECT_EQ(rows(kDecodeShapes[1]), 2048);
  EXPECT_EQ(kDecodeShapes[1].groups.size(), 64u);
  EXPECT_EQ(rows(kDecodeShapes[2]), 256);
  EXPECT_EQ(kDecodeShapes[2].groups.size(), 128u);
  EXPECT_EQ(rows(kPrefillShapes[0]), 8 * 2048);
}

}  // namespace
}  // namespace tetrad
