// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper GEMM on a device of capability 9.0, every instance: against the FP64
// oracle, bit by bit where sums are exact; what may not change bits; what must not
// be written. FP16 and BF16 outputs, row-major, M on the host.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/compare.h"
#include "kernels/cuda/device_operands.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/sample.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/pack.h"

namespace tetrad::sm90 {
namespace {

constexpr ActivationType kActivations[] = {ActivationType::kFp16, ActivationType::kBf16};
constexpr OutputType kOutputs[] = {OutputType::kFp16, OutputType::kBf16};

int32_t WidthsOf(const Instance& instance) {
  return static_cast<int32_t>(std::ranges::count_if(instance.widths, [](int w) { return w > 0; }));
}

// How groups become tiles, and tiles lists of CTAs.
struct Cut {
  const Instance* instance = nullptr;
  int32_t width = -1;  // which; -1: all of the instance's in turn
  int32_t ctas = 7;
  int32_t first_rows = 0;   // rows of a group's first tile, if fewer than it could have
  int32_t most_rows = 256;  // of any tile
};

std::string Describe(const Cut& cut) {
  return absl::StrCat(cut.instance->name, " width ", cut.width, " ctas ", cut.ctas, " first ",
                      cut.first_rows, " most ", cut.most_rows);
}

// Every instance, with each of its widths alone and all of them in one list.
std::vector<Cut> EveryCut() {
  std::vector<Cut> cuts;
  for (const Instance& instance : kInstances) {
    for (int32_t width = -1; width < WidthsOf(instance); ++width) {
      cuts.push_back({.instance = &instance, .width = width});
    }
  }
  return cuts;
}

struct TileLists {
  std::vector<TileEntry> entries;
  int32_t tiles_per_cta = 0;
};

// Of groups of one stack. CTA i gets tiles i, i + ctas, ...
TileLists CutGroups(std::span<const GroupProblem> groups, const DeviceMProblem& stack,
                    const Cut& cut) {
  const Instance& instance = *cut.instance;
  std::vector<std::vector<TileEntry>> lists(static_cast<size_t>(cut.ctas));
  size_t count = 0;
  int32_t turn = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupProblem& group = groups[g];
    const int64_t stack_row =
        (group.a - stack.a) / ActivationBytes(ActivationType::kFp16, 1, group.k);
    const auto matrix = (group.b - stack.b) / CodeBytes(group.n, group.k);
    const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
    for (int32_t column = 0; column < group.n; column += kBlockRows * instance.strips) {
      int32_t rows = 0;
      for (int32_t row = 0; row < group.m; row += rows) {
        const int32_t which = cut.width >= 0 ? cut.width : turn++ % WidthsOf(instance);
        rows = std::min({instance.widths[which], cut.most_rows, group.m - row});
        if (row == 0 && cut.first_rows > 0) rows = std::min(rows, cut.first_rows);
        const auto block = matrix * PackedBlocks(group.n, group.k) + column / kBlockRows * steps;
        lists[count++ % lists.size()].push_back(
            {.block = static_cast<uint32_t>(block),
             .token = static_cast<int32_t>(stack_row + row),
             .rows = rows,
             .columns = group.n - column,
             .steps = steps,
             .group = static_cast<int32_t>(g),
             .scale_row = static_cast<int32_t>(stack_row + row),
             .width = which,
             .c = ((stack_row + row) * group.c_stride + column) * 2,
             .c_stride = group.c_stride});
      }
    }
  }
  TileLists result;
  for (const auto& list : lists) {
    result.tiles_per_cta = std::max(result.tiles_per_cta, static_cast<int32_t>(list.size()) + 1);
  }
  for (auto& list : lists) {
    list.resize(static_cast<size_t>(result.tiles_per_cta));  // what is added has width -1
    result.entries.insert(result.entries.end(), list.begin(), list.end());
  }
  return result;
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

std::vector<GroupProblem> Copy(const Operands& operands) {
  return {operands.groups().begin(), operands.groups().end()};
}

class Sm90GemmGpuTest : public cuda::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().capability() != 90) {
      GTEST_SKIP() << "the Hopper kernel needs capability 9.0, this device has "
                   << device().capability();
    }
    for (const ActivationType type : kActivations) {
      ASSERT_NE(cuda::ChooseImage(cuda::HopperImages(), Unit(type), 90), nullptr) << Unit(type);
    }
  }

  // Computes `groups`, of the stack that `operands` are, into the host's C.
  void Run(const Operands& operands, std::span<const GroupProblem> groups, const Cut& cut) {
    device().Reset();
    cuda::DeviceOperands on_device(device(), operands);
    DeviceMProblem stack = operands.stack();
    std::vector<float> alphas;
    std::vector<int32_t> offsets(groups.size() + 1);
    for (const GroupProblem& group : groups) alphas.push_back(group.alpha);
    stack.groups = static_cast<int32_t>(groups.size());
    stack.alpha = alphas.data();
    stack.m_source = MSource::kOffsets;
    stack.m_values = offsets.data();
    const cuda::LaunchArguments at = on_device.DeviceM(stack);  // addresses

    const TileLists lists = CutGroups(groups, operands.stack(), cut);
    GemmArguments arguments;
    MakeTokenMaps(at.a, operands, *cut.instance, &arguments);
    if (HasFatalFailure()) return;
    arguments.weights = UploadPacked(operands);
    arguments.c = at.c;
    arguments.alpha = at.alpha;
    arguments.row_scale = at.row_scale;
    arguments.tiles = reinterpret_cast<const TileEntry*>(Upload(std::span(lists.entries)));
    arguments.tiles_per_cta = lists.tiles_per_cta;
    arguments.types = operands.types();
    const ActivationType type = operands.types().a_type;
    const std::string entry = absl::StrCat(
        "tetrad_sm90_", type == ActivationType::kFp16 ? "fp16_" : "bf16_", cut.instance->name);
    const int32_t shared = SharedBytes(*cut.instance);
    const cuda::KernelImage& image = *cuda::ChooseImage(cuda::HopperImages(), Unit(type), 90);
    device().Launch(device().Function(image, entry.c_str(), shared), cut.ctas,
                    Threads(*cut.instance), shared, arguments);
    on_device.DownloadOutput();
  }

  // Runs every cut; the outputs of each must pass, which those with the bits of one
  // that passed do.
  void ExpectEveryCutPasses(Operands& operands, std::span<const GroupProblem> groups,
                            const std::string& what) {
    const ProblemTypes& types = operands.types();
    std::vector<uint32_t> passed;
    for (const Cut& cut : EveryCut()) {
      operands.ClearOutput();
      Run(operands, groups, cut);
      EXPECT_TRUE(operands.OnlyOutputWritten(groups)) << what << ", " << Describe(cut);
      std::vector<uint32_t> bits = Outputs(types, groups);
      if (bits == passed) continue;
      const Check check = IsExact(operands.kind()) ? Check::kBits : Check::kBound;
      const Verdict verdict = Verify(
          types, groups, {.check = check, .accumulator = Accumulator::kTensorCore, .threads = 8});
      EXPECT_TRUE(verdict.pass) << what << ", " << Describe(cut) << "\n" << verdict.ToString();
      if (verdict.pass) passed = std::move(bits);
    }
  }

  // Types of outputs and kinds of data, with one shape.
  void ExpectShapePasses(std::span<const GroupShape> shapes, int64_t c_padding, bool row_scales) {
    for (const ActivationType a : kActivations) {
      for (const OutputType c : kOutputs) {
        for (const DataKind kind : {DataKind::kExact, DataKind::kGeneral}) {
          const ProblemTypes types{.a_type = a,
                                   .c_type = c,
                                   .b_scale_layout = c == OutputType::kFp16
                                                         ? ScaleLayout::kLinear
                                                         : ScaleLayout::kBlocked};
          Operands operands(shapes, {.types = types,
                                     .kind = kind,
                                     .form = GroupForm::kStacked,
                                     .row_scales = row_scales,
                                     .c_padding = c_padding,
                                     .seed = 31});
          ExpectEveryCutPasses(
              operands, operands.groups(),
              absl::StrCat("n ", shapes[0].n, " k ", shapes[0].k, " a ", static_cast<int>(a), " c ",
                           static_cast<int>(c), " kind ", static_cast<int>(kind)));
        }
      }
    }
  }

  static const char* Unit(ActivationType type) {
    return type == ActivationType::kFp16 ? "gemm_fp16" : "gemm_bf16";
  }

 private:
  template <class T>
  CUdeviceptr Upload(std::span<T> from) {
    const CUdeviceptr to = device().Allocate(from.size_bytes() + 1);
    device().Upload(to, std::as_bytes(from));
    return to;
  }

  const uint8_t* UploadPacked(const Operands& operands) {
    const DeviceMProblem& stack = operands.stack();
    std::vector<uint8_t> packed(static_cast<size_t>(stack.groups * PackedBytes(stack.n, stack.k)));
    PackWeights({stack.b,
                 stack.b_scales,
                 packed.data(),
                 {.groups = stack.groups,
                  .n = stack.n,
                  .k = stack.k,
                  .scale_layout = operands.types().b_scale_layout}});
    return reinterpret_cast<const uint8_t*>(Upload(std::span(packed)));
  }

  void MakeTokenMaps(const uint8_t* tokens, const Operands& operands, const Instance& instance,
                     GemmArguments* arguments) {
    const DeviceMProblem& stack = operands.stack();
    uint64_t rows = 0;
    for (const GroupProblem& group : operands.groups()) rows += static_cast<uint64_t>(group.m);
    const auto k = static_cast<uint64_t>(stack.k);
    for (int32_t i = 0; i < WidthsOf(instance); ++i) {
      const cuda::TensorMapSpec spec{.type = operands.types().a_type == ActivationType::kFp16
                                                 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                     .rank = 2,
                                     .address = reinterpret_cast<uint64_t>(tokens),
                                     .dims = {k, rows},
                                     .strides = {k * 2},
                                     .box = {kBlockK, static_cast<uint32_t>(instance.widths[i])},
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
      const auto map = cuda::EncodeTensorMap(device().driver(), spec);
      ASSERT_TRUE(map.ok()) << map.status();
      arguments->tokens[i] = *map;
    }
  }
};

// M around the ends of fragments and widths.
std::vector<GroupShape> Ragged(int32_t n, int32_t k) {
  const auto shapes = GroupsOf(n, k, 0, 1, 7, 8, 9, 255, 256, 257);
  return {shapes.begin(), shapes.end()};
}

TEST_F(Sm90GemmGpuTest, RaggedGroupsWithOddNAndOddStride) {
  for (const int32_t k : {32, 96, 160}) ExpectShapePasses(Ragged(333, k), 0, true);
  ExpectShapePasses(Ragged(77, 2048), 2, true);
}

TEST_F(Sm90GemmGpuTest, RaggedGroupsWithNThatIsAMultipleOf8) {
  for (const int32_t k : {32, 96, 160}) ExpectShapePasses(Ragged(264, k), 8, true);
  ExpectShapePasses(Ragged(136, 2048), 0, false);
}

// Columns that are left beside whole ones, and wide rows at odd strides.
TEST_F(Sm90GemmGpuTest, EndsOfRows) {
  for (const int32_t n : {1, 2, 3, 4, 5, 15, 17, 130, 131, 254, 255, 257, 258, 386}) {
    const auto shapes = GroupsOf(n, 96, 3, 0, 17, 130);
    ExpectShapePasses(shapes, (4 - n % 4) % 4, true);
    ExpectShapePasses(shapes, 3, false);
  }
}

// K in every way that slots of 1 to 8 steps, and pairs of them, do not divide.
TEST_F(Sm90GemmGpuTest, EveryNumberOfSteps) {
  for (int32_t steps = 1; steps <= 33; ++steps) {
    ExpectShapePasses(GroupsOf(131, steps * kBlockK - steps % 2 * 32, 5, 40), 0, false);
  }
}

TEST_F(Sm90GemmGpuTest, LongK) { ExpectShapePasses(GroupsOf(130, 16416, 1, 9, 3), 2, true); }

// Lists of one CTA and of more CTAs than there are tiles.
TEST_F(Sm90GemmGpuTest, ListsOfAnyLength) {
  for (const ActivationType a : kActivations) {
    const ProblemTypes types{.a_type = a};
    Operands operands(Ragged(200, 416), {.types = types, .form = GroupForm::kStacked});
    for (Cut cut : EveryCut()) {
      for (const int32_t ctas : {1, 2, 500}) {
        cut.ctas = ctas;
        operands.ClearOutput();
        Run(operands, operands.groups(), cut);
        const Verdict verdict = Verify(types, operands.groups(),
                                       {.accumulator = Accumulator::kTensorCore, .threads = 8});
        EXPECT_TRUE(verdict.pass) << Describe(cut) << "\n" << verdict.ToString();
        EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups())) << Describe(cut);
      }
    }
  }
}

TEST_F(Sm90GemmGpuTest, AnyAlpha) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float alphas[] = {0x1p119f,   -0x1.8p120f, 0x1p121f, 0x1.FFFFFEp127f, 0x1p-149f,
                          -0x1p-126f, 0.0f,        -0.0f,    -kInfinity,      std::nanf("")};
  for (const ActivationType a : kActivations) {
    for (const OutputType c : kOutputs) {
      for (const bool row_scales : {false, true}) {
        Operands operands(GroupsOf(133, 96, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9),
                          {.types = {.a_type = a, .c_type = c},
                           .form = GroupForm::kStacked,
                           .row_scales = row_scales});
        std::vector<GroupProblem> groups = Copy(operands);
        for (size_t g = 0; g < groups.size(); ++g) groups[g].alpha = alphas[g];
        ExpectEveryCutPasses(operands, groups, "alpha");
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
    std::vector<GroupProblem> groups = Copy(operands);
    groups[0].alpha = 1;
    for (const Cut& cut : EveryCut()) {
      operands.ClearOutput();
      Run(operands, groups, cut);
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
      const ProblemTypes types{.a_type = a, .c_type = OutputType::kFp16};
      Operands operands(GroupsOf(200, k, 150, 33, 7), {.types = types,
                                                       .kind = DataKind::kGeneral,
                                                       .form = GroupForm::kStacked,
                                                       .row_scales = true});
      Run(operands, operands.groups(), {.instance = &kInstances[0], .width = 0});
      const std::vector<uint32_t> expected = Outputs(types, operands.groups());
      const auto expect_same = [&](const Cut& cut) {
        operands.ClearOutput();
        Run(operands, operands.groups(), cut);
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
      for (const Cut& cut : EveryCut()) {
        operands.ClearOutput();
        Run(operands, fewer, cut);
        EXPECT_TRUE(Outputs(types, fewer) == expected_fewer) << Describe(cut);
        EXPECT_TRUE(operands.OnlyOutputWritten(fewer)) << Describe(cut);
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90
