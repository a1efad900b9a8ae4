// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper GEMM with device-side M on a device of capability 9.0, every instance: the bits of
// the same launch with M on the host, the error word of the CPU, nothing written beside.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/device_operands.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/random.h"
#include "kernels/sample.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/live_tiles.h"
#include "kernels/sm90/pack.h"

namespace tetrad::sm90 {
namespace {

constexpr ActivationType kActivations[] = {ActivationType::kFp16, ActivationType::kBf16};

const char* Unit(ActivationType type) {
  return type == ActivationType::kFp16 ? "gemm_fp16" : "gemm_bf16";
}

std::string Describe(const DeviceMProblem& problem) {
  const bool counts = problem.m_source == MSource::kCounts;
  const std::span values(problem.m_values, static_cast<size_t>(problem.groups + (counts ? 0 : 1)));
  const auto some = values.first(std::min<size_t>(values.size(), 20));
  return absl::StrCat(counts ? "counts " : "offsets ", absl::StrJoin(some, " "),
                      some.size() < values.size() ? " ..." : "", ", capacity ",
                      problem.capacity_rows, ", n ", problem.n, ", k ", problem.k);
}

// Tiles of the instance's widths in turn: bits do not hang on them. CTA i gets tiles i, i + ctas...
std::vector<TileEntry> HostLists(const Instance& instance, const DeviceMProblem& problem,
                                 std::span<const GroupProblem> groups, int32_t ctas,
                                 int32_t* tiles_per_cta) {
  std::vector<std::vector<TileEntry>> lists(static_cast<size_t>(ctas));
  const auto steps = static_cast<int32_t>(CeilDiv(problem.k, kBlockK));
  size_t count = 0, most = 0;
  int32_t turn = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t first = (groups[g].a - problem.a) / (int64_t{problem.k} * 2);
    for (int32_t column = 0; column < problem.n; column += kBlockRows * instance.strips) {
      int32_t rows = 0;
      for (int32_t row = 0; row < groups[g].m; row += rows) {
        int32_t which = turn++ % kMaxWidths;
        while (instance.widths[which] == 0) --which;
        rows = std::min(instance.widths[which], groups[g].m - row);
        const auto block = static_cast<int64_t>(g) * PackedBlocks(problem.n, problem.k) +
                           int64_t{column / kBlockRows} * steps;
        auto& list = lists[count++ % lists.size()];
        list.push_back({.block = static_cast<uint32_t>(block),
                        .token = static_cast<int32_t>(first + row),
                        .rows = rows,
                        .columns = problem.n - column,
                        .steps = steps,
                        .group = static_cast<int32_t>(g),
                        .scale_row = static_cast<int32_t>(first + row),
                        .width = which,
                        .c = ((first + row) * problem.c_stride + column) * 2,
                        .c_stride = problem.c_stride});
        most = std::max(most, list.size());
      }
    }
  }
  *tiles_per_cta = static_cast<int32_t>(most) + 1;
  std::vector<TileEntry> entries;
  for (auto& list : lists) {
    list.resize(most + 1);  // what is added has width -1
    entries.insert(entries.end(), list.begin(), list.end());
  }
  return entries;
}

class Sm90LiveGpuTest : public cuda::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().capability() != 90) {
      GTEST_SKIP() << "the Hopper kernel needs capability 9.0, this device has "
                   << device().capability();
    }
  }

  // Computes `problem`, whose rows are all of `operands`, into the host's C: M on the device,
  // or, with `groups`, what the host made of it.
  void Run(const Operands& operands, const DeviceMProblem& problem, const Instance& instance,
           int32_t ctas, const std::vector<GroupProblem>* groups, uint32_t* error) {
    device().Reset();
    cuda::DeviceOperands on_device(device(), operands);
    const cuda::LaunchArguments at = on_device.DeviceM(problem);
    GemmArguments arguments;
    MakeTokenMaps(at.a, operands, instance, &arguments);
    if (HasFatalFailure()) return;
    arguments.weights = UploadPacked(operands);
    arguments.c = at.c;
    arguments.alpha = at.alpha;
    arguments.row_scale = at.row_scale;
    arguments.state = at.state;
    arguments.types = operands.types();
    std::vector<TileEntry> entries;
    CUdeviceptr lists = 0;
    if (groups != nullptr) {
      entries = HostLists(instance, problem, *groups, ctas, &arguments.tiles_per_cta);
      arguments.tiles = reinterpret_cast<const TileEntry*>(Upload(std::span(entries)));
    } else {
      const LiveShape shape{problem.m_source, problem.capacity_rows, problem.groups, problem.n,
                            problem.k};
      arguments.tiles_per_cta = static_cast<int32_t>(MostTilesPerCta(instance, shape, ctas));
      entries.resize(static_cast<size_t>(ctas) * static_cast<size_t>(arguments.tiles_per_cta) + 1);
      for (TileEntry& entry : entries) entry.width = kMaxWidths;  // no tile and no end
      lists = Upload(std::span(entries));
      const auto covers = CoverTable(instance, problem.k);
      arguments.live = {.m_values = at.m_values,
                        .covers = reinterpret_cast<const uint32_t*>(Upload(std::span(covers))),
                        .lists = reinterpret_cast<TileEntry*>(lists),
                        .capacity_rows = problem.capacity_rows,
                        .c_stride = problem.c_stride,
                        .group_count = problem.groups,
                        .n = problem.n,
                        .k = problem.k,
                        .m_source = problem.m_source};
    }
    const ActivationType type = operands.types().a_type;
    const std::string entry = absl::StrCat(
        "tetrad_sm90_", type == ActivationType::kFp16 ? "fp16_" : "bf16_", instance.name);
    const int32_t shared = SharedBytes(instance);
    const cuda::KernelImage* const image = cuda::ChooseImage(cuda::HopperImages(), Unit(type), 90);
    ASSERT_NE(image, nullptr);
    device().Launch(device().Function(*image, entry.c_str(), shared), ctas, Threads(instance),
                    shared, arguments);
    on_device.DownloadOutput();
    *error = on_device.ReadState().error_word;
    if (groups != nullptr) return;
    device().Download(std::as_writable_bytes(std::span(entries)), lists);
    EXPECT_EQ(entries.back().width, kMaxWidths) << "written behind all lists";
  }

  // `exact`: the host's bits are checked too.
  void ExpectTheHostsBits(Operands& operands, const DeviceMProblem& problem, bool exact) {
    std::vector<GroupProblem> groups(static_cast<size_t>(problem.groups));
    uint32_t expected_error = 0;
    cpu::ResolveDeviceM(problem, operands.types(), groups, &expected_error);
    const auto a = static_cast<int>(operands.types().a_type);
    for (const Instance& instance : kInstances) {
      const std::string what = absl::StrCat(instance.name, ", a ", a, ", ", Describe(problem));
      uint32_t error = 0;
      operands.ClearOutput();
      Run(operands, problem, instance, 7, &groups, &error);
      ASSERT_FALSE(HasFatalFailure()) << what;
      const std::vector<std::vector<uint32_t>> expected = Outputs(operands, groups);
      if (exact) {
        const Verdict verdict =
            Verify(operands.types(), groups, {.check = Check::kBits, .threads = 8});
        ASSERT_TRUE(verdict.pass) << "M on the host: " << what << "\n" << verdict.ToString();
      }
      for (const int32_t ctas : {device().multiprocessors(), 3}) {
        operands.ClearOutput();
        Run(operands, problem, instance, ctas, nullptr, &error);
        ASSERT_FALSE(HasFatalFailure()) << what;
        EXPECT_EQ(error, expected_error) << what << ", CTAs " << ctas;
        EXPECT_TRUE(operands.OnlyOutputWritten(groups)) << what << ", CTAs " << ctas;
        ExpectSame(expected, Outputs(operands, groups), absl::StrCat(what, ", CTAs ", ctas));
      }
      if (HasFailure()) return;
    }
  }

 private:
  // The bits of every output, of each group.
  static std::vector<std::vector<uint32_t>> Outputs(const Operands& operands,
                                                    const std::vector<GroupProblem>& groups) {
    std::vector<std::vector<uint32_t>> bits;
    for (const GroupProblem& group : groups) {
      auto& of_group = bits.emplace_back();
      for (int32_t row = 0; row < group.m; ++row) {
        for (int32_t column = 0; column < group.n; ++column) {
          of_group.push_back(LoadOutput(operands.types(), group, row, column));
        }
      }
    }
    return bits;
  }

  static void ExpectSame(const std::vector<std::vector<uint32_t>>& expected,
                         const std::vector<std::vector<uint32_t>>& outputs,
                         const std::string& what) {
    for (size_t g = 0; g < expected.size(); ++g) {
      const auto at = std::ranges::mismatch(expected[g], outputs[g]);
      if (at.in1 == expected[g].end()) continue;
      int64_t wrong = 0;
      for (size_t i = 0; i < expected[g].size(); ++i) wrong += expected[g][i] != outputs[g][i];
      ADD_FAILURE() << what << ": group " << g << ", " << wrong << " of " << expected[g].size()
                    << " outputs, first number " << at.in1 - expected[g].begin() << ": " << *at.in2
                    << " instead of " << *at.in1;
      return;
    }
  }

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
    uint64_t rows = 0;
    for (const GroupProblem& group : operands.groups()) rows += static_cast<uint64_t>(group.m);
    const auto k = static_cast<uint64_t>(operands.stack().k);
    for (int32_t i = 0; i < kMaxWidths && instance.widths[i] > 0; ++i) {
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

// Groups of `rows` rows each, and what a launch makes of values about them.
struct Sample {
  Operands operands;
  DeviceMProblem problem;

  Sample(const ProblemTypes& types, MSource source, int32_t groups, int32_t rows, int32_t n,
         int32_t k, int64_t c_padding)
      : operands(std::vector<GroupShape>(static_cast<size_t>(groups), GroupShape{rows, n, k}),
                 {.types = types,
                  .kind = DataKind::kExact,
                  .form = GroupForm::kStacked,
                  .row_scales = true,
                  .c_padding = c_padding,
                  .seed = 51}),
        problem(operands.stack()) {
    problem.m_source = source;
    problem.capacity_rows = source == MSource::kCounts ? rows : int64_t{groups} * rows;
  }
};

struct ReadCase {
  MSource source;
  std::vector<int32_t> values;
};

// Of 4 groups of 300 rows.
std::vector<ReadCase> Cases() {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  return {
      {MSource::kCounts, {300, 0, 1, 129}},
      {MSource::kCounts, {0, 0, 0, 0}},
      {MSource::kCounts, {300, 300, 300, 300}},
      {MSource::kCounts, {kMost, -1, kLeast, 301}},
      {MSource::kOffsets, {0, 300, 600, 900, 1200}},
      {MSource::kOffsets, {0, 0, 1, 1, 900}},
      {MSource::kOffsets, {0, 0, 0, 0, 0}},
      {MSource::kOffsets, {3, 9, 200, 720, 1200}},
      {MSource::kOffsets, {0, 300, 120, 310, 400}},
      {MSource::kOffsets, {0, 300, 600, 900, 1201}},
      {MSource::kOffsets, {kLeast, kMost, kLeast, 7, -1}},
  };
}

TEST_F(Sm90LiveGpuTest, LegalAndHostileValues) {
  for (const ActivationType a : kActivations) {
    for (const OutputType c : {OutputType::kFp16, OutputType::kBf16}) {
      for (const ReadCase& test : Cases()) {
        Sample sample({.a_type = a, .c_type = c}, test.source, 4, 300, 333, 160, 3);
        sample.problem.m_values = test.values.data();
        ExpectTheHostsBits(sample.operands, sample.problem, true);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Sm90LiveGpuTest, RandomValues) {
  Random random(52);
  for (int round = 0; round < 40; ++round) {
    const ActivationType a = kActivations[round % 2];
    const MSource source = round % 4 < 2 ? MSource::kCounts : MSource::kOffsets;
    const int32_t groups = random.OneIn(3) ? random.Between(1, 4) : random.Between(5, 70);
    const int32_t rows = random.Between(1, groups < 5 ? 900 : 60);
    const int32_t n = random.OneIn(2) ? 128 * random.Between(1, 4) : random.Between(1, 400);
    Sample sample({.a_type = a}, source, groups, rows, n, 32 * random.Between(1, 30),
                  random.Between(0, 8));
    std::vector<int32_t> values(static_cast<size_t>(groups) + 1);
    const auto capacity = static_cast<int32_t>(sample.problem.capacity_rows);
    for (int32_t& value : values) value = random.Between(0, capacity);
    if (source == MSource::kOffsets) {
      std::ranges::sort(values);
      values[0] = 0;
    }
    if (random.OneIn(2)) {
      for (int32_t& value : values) {
        if (random.OneIn(5)) value = random.Between(-capacity, 2 * capacity);
      }
    }
    sample.problem.m_values = values.data();
    ExpectTheHostsBits(sample.operands, sample.problem, false);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// Around the threads of a CTA, and more.
TEST_F(Sm90LiveGpuTest, ManyGroups) {
  Random random(53);
  for (const int32_t groups : {383, 384, 385, 640, 641, 1000}) {
    for (const MSource source : {MSource::kCounts, MSource::kOffsets}) {
      Sample sample({.a_type = ActivationType::kFp16}, source, groups, 3, 40, 64, 0);
      std::vector<int32_t> values(static_cast<size_t>(groups) + 1);
      const auto capacity = static_cast<int32_t>(sample.problem.capacity_rows);
      for (int32_t& value : values) value = random.Between(0, capacity);
      if (source == MSource::kOffsets) {
        std::ranges::sort(values);
        values[0] = 0;
      }
      sample.problem.m_values = values.data();
      ExpectTheHostsBits(sample.operands, sample.problem, false);
      ASSERT_FALSE(HasFailure()) << "groups " << groups;
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90
