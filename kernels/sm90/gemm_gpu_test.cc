// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper GEMM, every instance, type of tokens and of outputs, in both layouts: shapes,
// strides and lists against the FP64 oracle, bit by bit where sums are exact; what may not
// change bits; what must not be written.
#include "kernels/sm90/gemm_gpu_test.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/float16.h"
#include "kernels/nvfp4.h"

namespace tetrad::sm90 {
namespace {

// M around the ends of fragments and widths.
std::vector<GroupShape> Ragged(int32_t n, int32_t k) {
  const auto shapes = GroupsOf(n, k, 0, 1, 7, 8, 9, 255, 256, 257);
  return {shapes.begin(), shapes.end()};
}

TEST_F(Sm90GemmGpuTest, RaggedGroupsWithOddN) {
  for (const int32_t n : {1, 7, 129}) {
    ExpectShapePasses(Ragged(n, 96), {.multiple = 4});
    ExpectShapePasses(Ragged(n, 32), {.multiple = 2, .spare = 1});
  }
  ExpectShapePasses(Ragged(333, 160), {});
  ExpectShapePasses(Ragged(77, 2048), {.spare = 2});
}

TEST_F(Sm90GemmGpuTest, RaggedGroupsWithNThatIsAMultipleOf8) {
  for (const int32_t k : {32, 96, 160}) ExpectShapePasses(Ragged(264, k), {.multiple = 8});
  ExpectShapePasses(Ragged(136, 2048), {.row_scales = false}, std::span(kOutputs).last(2));
}

// Columns that are left beside whole ones, and whole ones that are not aligned: by the
// stride, or by where C begins.
TEST_F(Sm90GemmGpuTest, EndsOfLines) {
  for (const int32_t n : {1, 2, 3, 4, 5, 15, 17, 130, 131, 254, 255, 257, 258, 386}) {
    const auto shapes = GroupsOf(n, 96, 3, 0, 17, 130);
    ExpectShapePasses(shapes, {.multiple = 4});
    ExpectShapePasses(shapes, {.spare = 3, .row_scales = false});
    ExpectShapePasses(shapes, {.multiple = 8, .shift = n % 3 + 1});
  }
}

TEST_F(Sm90GemmGpuTest, ManyColumns) {
  ExpectShapePasses(GroupsOf(4097, 96, 9, 0, 1, 40), {.multiple = 4});
}

// K in every way that slots of 1 to 8 steps, and pairs of them, do not divide.
TEST_F(Sm90GemmGpuTest, EveryNumberOfSteps) {
  for (int32_t steps = 1; steps <= 33; ++steps) {
    const auto output = static_cast<size_t>(steps) % std::size(kOutputs);
    ExpectShapePasses(GroupsOf(131, steps * kBlockK - steps % 2 * 32, 5, 40), {.row_scales = false},
                      std::span(kOutputs).subspan(output, 1));
  }
}

TEST_F(Sm90GemmGpuTest, LongK) { ExpectShapePasses(GroupsOf(129, 16416, 1, 9, 3), {.spare = 2}); }

// Lists of one CTA and of more CTAs than there are tiles.
TEST_F(Sm90GemmGpuTest, ListsOfAnyLength) {
  for (const ActivationType a : kActivations) {
    const ProblemTypes types{.a_type = a};
    Operands operands(Ragged(200, 416), {.types = types, .form = GroupForm::kStacked});
    Place(operands);
    for (Cut cut : EveryCut()) {
      for (const int32_t ctas : {1, 2, 500}) {
        cut.ctas = ctas;
        operands.ClearOutput();
        Run(operands.groups(), cut);
        const Verdict verdict = Verify(types, operands.groups(),
                                       {.accumulator = Accumulator::kTensorCore, .threads = 8});
        EXPECT_TRUE(verdict.pass) << Describe(cut) << "\n" << verdict.ToString();
        EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups())) << Describe(cut);
      }
    }
  }
}

// Reverses the rows of every group, with their scales, in the operands' own memory.
void ReverseRows(std::span<const GroupProblem> groups) {
  for (const GroupProblem& group : groups) {
    auto* const a = const_cast<uint8_t*>(group.a);
    auto* const scales = const_cast<float*>(group.row_scale);
    const int64_t bytes = ActivationBytes(ActivationType::kFp16, 1, group.k);
    for (int32_t row = 0; row < group.m / 2; ++row) {
      const int32_t other = group.m - 1 - row;
      std::swap_ranges(a + row * bytes, a + (row + 1) * bytes, a + other * bytes);
      std::swap(scales[row], scales[other]);
    }
  }
}

// Makes of the only group of `operands` 1024 tokens, of which number i is one at k = i and
// zero elsewhere, and weights [2032, 1024] in which every code under every legal scale is in
// every row of a slab and at every k of a block.
void MakeOutputsTheWeights(const Operands& operands) {
  const GroupProblem& group = operands.groups()[0];
  auto* const a = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(group.a));
  const uint16_t one = operands.types().a_type == ActivationType::kFp16 ? 0x3C00 : 0x3F80;
  for (int64_t i = 0; i < group.m; ++i) {
    for (int64_t k = 0; k < group.k; ++k) a[i * group.k + k] = i == k ? one : 0;
  }
  auto* const codes = const_cast<uint8_t*>(group.b);
  auto* const scales = const_cast<uint8_t*>(group.b_scales);
  for (int64_t row = 0; row < group.n; ++row) {
    for (int64_t k = 0; k < group.k; ++k) {
      const auto code = static_cast<uint8_t>((k / kBlockK + k) % 16 << (4 * (k % 2)));
      uint8_t& both = codes[CodeBytes(row, group.k) + k / 2];
      both = k % 2 == 0 ? code : static_cast<uint8_t>(both | code);
      if (k % kScaleBlock == 0) {
        scales[ScaleOffset(operands.types().b_scale_layout, row, k / kScaleBlock, group.k)] =
            static_cast<uint8_t>(row / kSlabRows);
      }
    }
  }
}

TEST_F(Sm90GemmGpuTest, EveryCodeUnderEveryScaleIsExactInEveryPlace) {
  constexpr int32_t kRows = kUe4m3Nan * kSlabRows, kK = 16 * kBlockK;
  for (const ActivationType a : kActivations) {
    const ProblemTypes types{.a_type = a, .c_type = OutputType::kFp16};
    Operands operands(GroupsOf(kRows, kK, kK),
                      {.types = types, .kind = DataKind::kGeneral, .form = GroupForm::kStacked});
    MakeOutputsTheWeights(operands);
    Place(operands);
    std::vector<GroupProblem> groups(operands.groups().begin(), operands.groups().end());
    groups[0].alpha = 1;
    for (const Cut& cut : EveryCut()) {
      operands.ClearOutput();
      Run(groups, cut);
      int wrong = 0;
      for (int32_t k = 0; k < kK; ++k) {
        for (int32_t row = 0; row < kRows && wrong < 10; ++row) {
          const auto code = static_cast<uint8_t>((k / kBlockK + k) % 16);
          const auto scale = static_cast<uint8_t>(row / kSlabRows);
          const float weight = DecodeE2m1(code) * DecodeUe4m3(scale);
          const float got = DecodeFp16(static_cast<uint16_t>(LoadOutput(types, groups[0], k, row)));
          if (got == weight) continue;
          ++wrong;
          ADD_FAILURE() << Describe(cut) << " a " << static_cast<int>(a) << ": code " << int{code}
                        << " under scale " << int{scale} << " in row " << row << " at k " << k
                        << " is " << got << ", not " << weight;
        }
      }
    }
  }
}

// General data: every bit hangs on the order of accumulation.
TEST_F(Sm90GemmGpuTest, BitsOfATokenDependOnNothingBesideIt) {
  for (const ActivationType a : kActivations) {
    for (const int32_t k : {1056, 2048}) {
      const ProblemTypes types{.a_type = a, .c_type = OutputType::kFp32};
      Operands operands(GroupsOf(200, k, 150, 33, 7), {.types = types,
                                                       .kind = DataKind::kGeneral,
                                                       .form = GroupForm::kStacked,
                                                       .row_scales = true});
      Place(operands);
      Run(operands.groups(), {.instance = &kInstances[0], .width = 0});
      const std::vector<uint32_t> expected = Outputs(types, operands.groups());
      const auto expect_same = [&](const Cut& cut) {
        operands.ClearOutput();
        Run(operands.groups(), cut);
        EXPECT_TRUE(Outputs(types, operands.groups()) == expected) << Describe(cut);
      };
      for (Cut cut : EveryCut()) {
        expect_same(cut);
        // Other positions in the tile, other tiles in the list, rows alone in a tile.
        cut.ctas = 1;
        for (const int32_t first : {1, 3, 6}) {
          cut.first_rows = first;
          expect_same(cut);
        }
        cut.first_rows = 0;
        cut.most_rows = 1;
        expect_same(cut);
      }
      // Other neighbours, and fewer: each group's last rows, in reverse.
      std::vector<GroupProblem> fewer = Copy(operands);
      std::vector<uint32_t> expected_fewer;
      size_t begin = 0;
      for (GroupProblem& group : fewer) {
        const int32_t m = group.m;
        group.m = (m + 1) / 2;
        for (int32_t row = 0; row < group.m; ++row) {
          const auto at =
              expected.begin() + static_cast<int64_t>(begin) + int64_t{m - 1 - row} * group.n;
          expected_fewer.insert(expected_fewer.end(), at, at + group.n);
        }
        begin += static_cast<size_t>(m) * static_cast<size_t>(group.n);
      }
      ReverseRows(operands.groups());
      Place(operands);
      for (const Cut& cut : EveryCut()) {
        operands.ClearOutput();
        Run(fewer, cut);
        EXPECT_TRUE(Outputs(types, fewer) == expected_fewer) << Describe(cut);
        EXPECT_TRUE(operands.OnlyOutputWritten(fewer)) << Describe(cut);
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90
