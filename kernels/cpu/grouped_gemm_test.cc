// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/grouped_gemm.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/compare.h"
#include "kernels/cpu/run_groups.h"
#include "kernels/exactness.h"
#include "kernels/float16.h"
#include "kernels/sample.h"
#include "kernels/shapes.h"

namespace tetrad::cpu {
namespace {

std::vector<InstructionSet> SupportedSets() {
  std::vector<InstructionSet> sets;
  for (int i = 0; i < kInstructionSets; ++i) {
    if (Supported(static_cast<InstructionSet>(i))) sets.push_back(static_cast<InstructionSet>(i));
  }
  return sets;
}

std::string Describe(InstructionSet set, const SampleOptions& options) {
  return std::string(Name(set)) + " kind " + std::to_string(static_cast<int>(options.kind)) +
         " a " + std::to_string(static_cast<int>(options.types.a_type)) + " c " +
         std::to_string(static_cast<int>(options.types.c_type)) + " scales " +
         std::to_string(static_cast<int>(options.types.a_scale_layout)) +
         std::to_string(static_cast<int>(options.types.b_scale_layout)) + " layout " +
         std::to_string(static_cast<int>(options.types.c_layout)) + " form " +
         std::to_string(static_cast<int>(options.form)) + " seed " + std::to_string(options.seed);
}

VerifyOptions Against(DataKind kind) {
  return {.check = IsExact(kind) ? Check::kBits : Check::kBound};
}

// The bits of every output, group by group.
std::vector<uint32_t> Outputs(const ProblemTypes& types, std::span<const GroupProblem> groups) {
  std::vector<uint32_t> bits;
  for (const GroupProblem& group : groups) {
    for (int32_t row = 0; row < group.m; ++row) {
      for (int32_t column = 0; column < group.n; ++column) {
        bits.push_back(LoadOutput(types, group, row, column));
      }
    }
  }
  return bits;
}

std::vector<ProblemTypes> AllTypes() {
  std::vector<ProblemTypes> all;
  for (const auto a : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    for (const auto c : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const auto layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
        for (const auto b_scales : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
          for (const auto a_scales : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
            if (a != ActivationType::kNvfp4 && a_scales == ScaleLayout::kBlocked) continue;
            all.push_back({a, c, a_scales, b_scales, layout, Epilogue::kNone});
          }
        }
      }
    }
  }
  return all;
}

class EveryKindTest : public testing::TestWithParam<DataKind> {};

TEST_P(EveryKindTest, EveryTypeLayoutAndInstructionSetMatchesTheReference) {
  // Ragged rows and columns, odd N, an empty group, one K of a single step.
  constexpr GroupShape kShapes[] = {{5, 37, 96}, {0, 16, 64}, {33, 32, 352}, {1, 1, 32}};
  uint64_t seed = 1;
  for (const ProblemTypes& types : AllTypes()) {
    const SampleOptions options{.types = types,
                                .kind = GetParam(),
                                .row_scales = seed % 2 == 0,
                                .c_padding = static_cast<int64_t>(seed % 3),
                                .seed = seed};
    ++seed;
    Operands operands(kShapes, options);
    std::vector<uint32_t> first;
    for (const InstructionSet set : SupportedSets()) {
      SCOPED_TRACE(Describe(set, options));
      operands.ClearOutput();
      RunGroups(set, types, operands.groups(), {});
      const Verdict verdict = Verify(types, operands.groups(), Against(options.kind));
      ASSERT_TRUE(verdict.pass) << verdict.ToString();
      ASSERT_TRUE(operands.OnlyOutputWritten(operands.groups()));
      const std::vector<uint32_t> bits = Outputs(types, operands.groups());
      if (first.empty()) first = bits;
      ASSERT_EQ(bits, first);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindTest,
                         testing::Values(DataKind::kContest, DataKind::kExact, DataKind::kGeneral,
                                         DataKind::kNormal));

TEST(GroupedGemmTest, NamedTestShapesMatchTheReference) {
  for (const NamedShape& shape : kTestShapes) {
    for (const DataKind kind : {DataKind::kContest, DataKind::kExact}) {
      const SampleOptions options{.types = {.a_scale_layout = ScaleLayout::kBlocked,
                                            .b_scale_layout = ScaleLayout::kBlocked},
                                  .kind = kind};
      Operands operands(shape.groups, options);
      RunGroups(BestInstructionSet(), options.types, operands.groups(), {});
      const Verdict verdict = Verify(options.types, operands.groups(), Against(kind));
      EXPECT_TRUE(verdict.pass) << shape.name << ": " << verdict.ToString();
    }
  }
}

// Every choice of tiles, down to single elements, gives the bits of the largest.
TEST(GroupedGemmTest, TilingNeverChangesBits) {
  constexpr GroupShape kShapes[] = {{31, 70, 608}};
  const SampleOptions options{.types = {.c_type = OutputType::kFp32},
                              .kind = DataKind::kGeneral,
                              .row_scales = true,
                              .c_padding = 3};
  Operands operands(kShapes, options);
  for (const InstructionSet set : SupportedSets()) {
    operands.ClearOutput();
    RunGroups(set, options.types, operands.groups(), {});
    const std::vector<uint32_t> whole = Outputs(options.types, operands.groups());
    for (const Tiling tiling : {Tiling{1, 256},
                                {2, 32},
                                {3, 7},
                                {7, 64},
                                {13, 33},
                                {14, 1},
                                {15, 31},
                                {16, 17},
                                {29, 65},
                                {256, 16}}) {
      operands.ClearOutput();
      RunGroups(set, options.types, operands.groups(), tiling);
      ASSERT_EQ(Outputs(options.types, operands.groups()), whole)
          << Name(set) << " tiles " << tiling.rows << " x " << tiling.columns;
      ASSERT_TRUE(operands.OnlyOutputWritten(operands.groups()));
    }
  }
}

// Row r alone, and row r among other rows, has the same bits.
TEST(GroupedGemmTest, ARowsBitsDoNotDependOnItsNeighbours) {
  for (const auto a_type : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    constexpr int32_t kM = 60;
    constexpr GroupShape kShapes[] = {{kM, 45, 544}};
    const SampleOptions options{.types = {.a_type = a_type, .c_type = OutputType::kFp32},
                                .kind = DataKind::kGeneral};
    Operands operands(kShapes, options);
    const GroupProblem& all = operands.groups()[0];
    for (const InstructionSet set : SupportedSets()) {
      operands.ClearOutput();
      RunGroups(set, options.types, operands.groups(), {});
      const std::vector<uint32_t> together = Outputs(options.types, operands.groups());
      for (const int32_t m : {1, 2, 5, 8, 14, 17}) {
        for (int32_t row = 0; row + m <= kM; row += 11) {
          GroupProblem part = all;
          std::vector<float> c(static_cast<size_t>(m) * part.n);
          part.a += ActivationBytes(a_type, row, part.k);
          if (part.a_scales != nullptr) part.a_scales += row * (part.k / kScaleBlock);
          part.c = c.data();
          part.c_stride = part.n;
          part.m = m;
          RunGroups(set, options.types, {&part, 1}, {});
          const std::vector<uint32_t> alone = Outputs(options.types, {&part, 1});
          const auto begin = together.begin() + row * part.n;
          ASSERT_EQ(alone, std::vector<uint32_t>(begin, begin + m * part.n))
              << Name(set) << " rows " << row << " + " << m;
        }
      }
    }
  }
}

TEST(GroupedGemmTest, WorksTheSameOnEveryBenchmarkKBySamples) {
  for (const NamedShape& shape : kBenchmarkShapes) {
    const GroupShape small{19, 100, shape.groups[0].k};
    for (const DataKind kind : {DataKind::kContest, DataKind::kExact, DataKind::kNormal}) {
      const SampleOptions options{.kind = kind};
      Operands operands({&small, 1}, options);
      RunGroups(BestInstructionSet(), options.types, operands.groups(), {});
      const Verdict verdict = Verify(options.types, operands.groups(), Against(kind));
      EXPECT_TRUE(verdict.pass) << shape.name << ": " << verdict.ToString();
    }
  }
}

// One A row with one NaN scale: that row is NaN, canonical, and no other.
TEST(GroupedGemmTest, NanScaleOfAnActivationPoisonsItsRowOnly) {
  for (const auto c_type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
    for (const uint8_t codes : {0x00, 0x35}) {
      for (const uint8_t nan : {0x7F, 0xFF}) {
        constexpr GroupShape kShapes[] = {{20, 18, 320}};
        const SampleOptions options{
            .types = {.c_type = c_type, .a_scale_layout = ScaleLayout::kBlocked}};
        Operands operands(kShapes, options);
        const GroupProblem& group = operands.groups()[0];
        constexpr int32_t kRow = 15;
        constexpr int64_t kBlock = 17;
        auto* scales = const_cast<uint8_t*>(group.a_scales);
        auto* a = const_cast<uint8_t*>(group.a);
        scales[BlockedScaleOffset(kRow, kBlock, group.k)] = nan;
        std::memset(a + (kRow * group.k + kBlock * kScaleBlock) / 2, codes, kScaleBlock / 2);
        for (const InstructionSet set : SupportedSets()) {
          operands.ClearOutput();
          RunGroups(set, options.types, operands.groups(), {});
          const Verdict verdict = Verify(options.types, operands.groups(), {});
          ASSERT_TRUE(verdict.pass) << Name(set) << ": " << verdict.ToString();
          const uint32_t canonical = c_type == OutputType::kFp32   ? kCanonicalNanFp32
                                     : c_type == OutputType::kFp16 ? kCanonicalNanFp16
                                                                   : kCanonicalNanBf16;
          for (int32_t row = 0; row < group.m; ++row) {
            ASSERT_EQ(LoadOutput(options.types, group, row, 7) == canonical, row == kRow);
          }
        }
      }
    }
  }
}

// A product with BF16 may leave FP32's range, and come back, before it is
// rounded: only a fused multiply-add has these bits.
TEST(GroupedGemmTest, Bf16ExtremesAreFusedOnEveryInstructionSet) {
  constexpr int32_t kK = 32;
  struct Case {
    const char* what;
    float a0, a1;    // activations at k = 0 and 1
    uint8_t b0, b1;  // codes
    uint8_t scale;   // of the weights
    float alpha;
    float expected;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {"largest product overflows", kBf16Max, 0, 0x7, 0x0, 0x7E, 1, infinity},
      {"negative overflow", -kBf16Max, 0, 0x7, 0x0, 0x7E, 1, -infinity},
      {"overflow stays although the next product is opposite", kBf16Max, kBf16Max, 0x7, 0xF, 0x7E,
       1, infinity},
      {"a product beyond the range is rescued by the sum", -kBf16Max, kBf16Max, 0x2, 0x3, 0x38, 1,
       kBf16Max / 2},
      {"two times the largest, rescued", -kBf16Max, kBf16Max, 0x2, 0x4, 0x38, 1, kBf16Max},
      {"least subnormal times least scale and code is exact", 0x1p-133f, 0, 0x1, 0x0, 0x01, 1,
       0x1p-143f},
      {"alpha overflows after the sum", kBf16Max, 0, 0x2, 0x0, 0x38, 2, infinity},
      {"alpha underflows to the FP32 subnormal", 0x1p-126f, 0, 0x2, 0x0, 0x38, 0x1p-20f, 0x1p-146f},
      {"infinity in", infinity, 0, 0x2, 0x0, 0x38, 1, infinity},
      {"infinity times zero", infinity, 0, 0x0, 0x0, 0x38, 1,
       std::numeric_limits<float>::quiet_NaN()},
  };
  for (const Case& c : cases) {
    uint8_t a[kK * 2] = {};
    uint8_t b[kK / 2] = {};
    const uint8_t scales[kK / kScaleBlock] = {c.scale, c.scale};
    const uint16_t first = EncodeBf16(c.a0);
    const uint16_t second = EncodeBf16(c.a1);
    std::memcpy(a, &first, 2);
    std::memcpy(a + 2, &second, 2);
    b[0] = static_cast<uint8_t>(c.b0 | c.b1 << 4);
    for (const InstructionSet set : SupportedSets()) {
      float out = -1;
      const ProblemTypes types{.a_type = ActivationType::kBf16, .c_type = OutputType::kFp32};
      const GroupProblem group{.a = a,
                               .b = b,
                               .b_scales = scales,
                               .c = &out,
                               .c_stride = 1,
                               .m = 1,
                               .n = 1,
                               .k = kK,
                               .alpha = c.alpha};
      RunGroups(set, types, {&group, 1}, {});
      EXPECT_EQ(OutputBits(OutputType::kFp32, out), OutputBits(OutputType::kFp32, c.expected))
          << Name(set) << ": " << c.what << ": " << out;
    }
  }
}

// Ties, overflow and subnormals of the final conversion, in every lane.
TEST(GroupedGemmTest, ConversionRoundsToNearestEven) {
  constexpr int32_t kK = 32;
  constexpr int32_t kN = 40;
  std::vector<uint8_t> b(kN * kK / 2);
  const std::vector<uint8_t> scales(kN * kK / kScaleBlock, 0x38);
  for (int32_t n = 0; n < kN; ++n) b[n * kK / 2] = 0x2;  // column n = a[0]
  const float magnitudes[] = {0,
                              1,
                              1 + 0x1p-11f,  // FP16 tie, down
                              1 + 0x3p-11f,  // FP16 tie, up
                              1 + 0x1p-8f,   // BF16 tie, down
                              1 + 0x3p-8f,   // BF16 tie, up
                              std::nextafter(1 + 0x1p-11f, 2.0f),
                              std::nextafter(1 + 0x1p-8f, 2.0f),
                              65504,
                              65519.996f,
                              65520,
                              0x1p-24f,
                              0x1p-25f,
                              std::nextafter(0x1p-25f, 1.0f),
                              0x3p-25f,
                              0x1p-14f,
                              0x1.FFEp-15f,
                              0x1.FFFp-15f,
                              kBf16Max,
                              0x1.FEFFFEp127f,
                              0x1.FFp127f,
                              0x1p-133f,
                              0x1p-134f,
                              0x3p-134f,
                              std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::infinity()};
  for (const auto c_type : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
    for (const float magnitude : magnitudes) {
      for (const float value : {magnitude, -magnitude}) {
        uint16_t a[kK] = {0x3C00};
        uint8_t c[kN * 4];
        const ProblemTypes types{.a_type = ActivationType::kFp16, .c_type = c_type};
        const GroupProblem group{.a = reinterpret_cast<const uint8_t*>(a),
                                 .b = b.data(),
                                 .b_scales = scales.data(),
                                 .c = c,
                                 .c_stride = kN,
                                 .m = 1,
                                 .n = kN,
                                 .k = kK,
                                 .alpha = value};
        for (const InstructionSet set : SupportedSets()) {
          RunGroups(set, types, {&group, 1}, {});
          for (int32_t n = 0; n < kN; ++n) {
            ASSERT_EQ(LoadOutput(types, group, 0, n), OutputBits(c_type, value))
                << Name(set) << " " << value << " column " << n;
          }
        }
      }
    }
  }
}

TEST(GroupedGemmTest, DequantizedRowsAreExactOnEveryInstructionSet) {
  constexpr GroupShape kShapes[] = {{3, 40, 608}};
  for (const auto layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    const SampleOptions options{.types = {.b_scale_layout = layout}, .kind = DataKind::kGeneral};
    const Operands operands(kShapes, options);
    const GroupProblem& group = operands.groups()[0];
    const int64_t stride = group.k + 5;
    std::vector<double> expected(static_cast<size_t>(group.k));
    for (const InstructionSet set : SupportedSets()) {
      std::vector<float> out(static_cast<size_t>(group.n * stride), -7);
      DequantizeRows(set, group.b, group.b_scales, layout, group.k, 2, group.n - 2, out.data(),
                     stride);
      for (int64_t row = 2; row < group.n; ++row) {
        WeightRow(options.types, group, row, expected.data());
        const float* actual = out.data() + (row - 2) * stride;
        for (int64_t i = 0; i < group.k; ++i) ASSERT_EQ(actual[i], expected[i]) << Name(set);
        for (int64_t i = group.k; i < stride; ++i) ASSERT_EQ(actual[i], -7);
      }
    }
  }
}

SampleOptions RandomOptions(Random& random) {
  SampleOptions options;
  ProblemTypes& types = options.types;
  types.a_type = static_cast<ActivationType>(random.Below(3));
  types.c_type = static_cast<OutputType>(random.Below(3));
  types.b_scale_layout = static_cast<ScaleLayout>(random.Below(2));
  if (types.a_type == ActivationType::kNvfp4) {
    types.a_scale_layout = static_cast<ScaleLayout>(random.Below(2));
  }
  types.c_layout = static_cast<OutputLayout>(random.Below(2));
  options.kind = static_cast<DataKind>(random.Below(4));
  options.form = static_cast<GroupForm>(random.Below(2));
  options.row_scales = random.OneIn(2);
  options.c_padding = random.OneIn(2) ? 0 : random.Between(1, 20);
  options.seed = random.Next();
  return options;
}

// TETRAD_LONG=<count> runs more of them.
TEST(GroupedGemmTest, RandomProblemsMatchTheReferenceAndEachOther) {
  const char* count = std::getenv("TETRAD_LONG");
  const int problems = count != nullptr ? std::atoi(count) : 60;
  Random random(2024);
  for (int i = 0; i < problems; ++i) {
    const SampleOptions options = RandomOptions(random);
    const int32_t n = random.Between(1, 90);
    const int32_t k = 32 * random.Between(1, 24);
    std::vector<GroupShape> shapes;
    for (int g = random.Between(1, 4); g > 0; --g) {
      const bool stacked = options.form == GroupForm::kStacked;
      shapes.push_back({random.OneIn(5) ? 0 : random.Between(1, 70),
                        stacked ? n : random.Between(1, 90),
                        stacked ? k : 32 * random.Between(1, 24)});
    }
    Operands operands(shapes, options);
    std::vector<uint32_t> first;
    for (const InstructionSet set : SupportedSets()) {
      SCOPED_TRACE("problem " + std::to_string(i) + " " + Describe(set, options));
      operands.ClearOutput();
      RunGroups(set, options.types, operands.groups(),
                {random.Between(1, kMaxTileRows), random.Between(1, kMaxTileColumns)});
      ASSERT_TRUE(operands.OnlyOutputWritten(operands.groups()));
      const std::vector<uint32_t> bits = Outputs(options.types, operands.groups());
      if (first.empty()) {
        const Verdict verdict = Verify(options.types, operands.groups(), Against(options.kind));
        ASSERT_TRUE(verdict.pass) << verdict.ToString();
        first = bits;
      }
      ASSERT_EQ(bits, first);
    }
  }
}

}  // namespace
}  // namespace tetrad::cpu
