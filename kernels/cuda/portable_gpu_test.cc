// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The portable kernel on a device: every signature against the FP64 oracle, bit
// by bit where sums are exact; what may not change bits; what must not be written.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/device_operands.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/float16.h"
#include "kernels/shapes.h"

namespace tetrad::cuda {
namespace {

constexpr auto kActivations = {ActivationType::kNvfp4, ActivationType::kFp16,
                               ActivationType::kBf16};
constexpr auto kOutputs = {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32};
constexpr auto kScaleLayouts = {ScaleLayout::kLinear, ScaleLayout::kBlocked};

// Every one, or some that have each value of each field.
std::vector<ProblemTypes> AllTypes() {
  if (TestEffort() == Effort::kSample) {
    return {{ActivationType::kNvfp4, OutputType::kFp16, ScaleLayout::kLinear, ScaleLayout::kBlocked,
             OutputLayout::kRowMajor},
            {ActivationType::kNvfp4, OutputType::kFp32, ScaleLayout::kBlocked, ScaleLayout::kLinear,
             OutputLayout::kColumnMajor},
            {ActivationType::kFp16, OutputType::kBf16, ScaleLayout::kLinear, ScaleLayout::kLinear,
             OutputLayout::kColumnMajor},
            {ActivationType::kBf16, OutputType::kFp32, ScaleLayout::kLinear, ScaleLayout::kBlocked,
             OutputLayout::kRowMajor}};
  }
  std::vector<ProblemTypes> all;
  for (const auto a : kActivations) {
    for (const auto c : kOutputs) {
      for (const auto layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
        for (const auto a_scales : kScaleLayouts) {
          if (a != ActivationType::kNvfp4 && a_scales != ScaleLayout::kLinear) continue;
          for (const auto b_scales : kScaleLayouts)
            all.push_back({a, c, a_scales, b_scales, layout});
        }
      }
    }
  }
  return all;
}

std::string Describe(const SampleOptions& options) {
  const ProblemTypes& types = options.types;
  std::string text = "a, c, scales of a and b, layout, form, row scales, padding:";
  for (const int value :
       {static_cast<int>(types.a_type), static_cast<int>(types.c_type),
        static_cast<int>(types.a_scale_layout), static_cast<int>(types.b_scale_layout),
        static_cast<int>(types.c_layout), static_cast<int>(options.form),
        static_cast<int>(options.row_scales), static_cast<int>(options.c_padding)}) {
    absl::StrAppend(&text, " ", value);
  }
  return text;
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

struct Cut {
  int32_t rows = kPortableTileRows;
  int32_t columns = kPortableTileColumns;
  int32_t ctas = 7;
};

class PortableGpuTest : public GpuTest {
 protected:
  CUfunction Entry(ActivationType type) {
    return device().Function("portable", PortableEntry(type), kPortableSharedBytes);
  }
  void Launch(const LaunchArguments& arguments, int32_t ctas) {
    device().Launch(Entry(arguments.types.a_type), ctas, kPortableThreads, kPortableSharedBytes,
                    arguments);
  }
  // Computes `groups`, which lie in `operands`, into the host's C.
  void RunHostM(const Operands& operands, std::span<const GroupProblem> groups, const Cut& cut) {
    device().Reset();
    DeviceOperands on_device(device(), operands);
    const TileList list = CutTiles(groups, cut.rows, cut.columns, cut.ctas);
    Launch(on_device.HostM(groups, list.tiles, list.cta_begin), cut.ctas);
    on_device.DownloadOutput();
    const LaunchState state = on_device.ReadState();
    EXPECT_EQ(state.error_word, 0u);
    EXPECT_NE(state.begun_ns, 0u);
  }
  // The same with M of the problem on the device; the error word.
  uint32_t RunDeviceM(const Operands& operands, const DeviceMProblem& problem, int32_t ctas) {
    device().Reset();
    DeviceOperands on_device(device(), operands);
    Launch(on_device.DeviceM(problem), ctas);
    on_device.DownloadOutput();
    return on_device.ReadState().error_word;
  }
  void ExpectExact(const ProblemTypes& types, std::span<const GroupProblem> groups,
                   const std::string& what) {
    const Verdict verdict = Verify(types, groups, {.check = Check::kBits, .threads = 4});
    EXPECT_TRUE(verdict.pass) << what << "\n" << verdict.ToString();
  }
};

constexpr GroupShape kRagged[] = {{0, 5, 32},    {1, 1, 32},    {17, 33, 96},   {130, 129, 160},
                                  {64, 200, 64}, {257, 65, 96}, {3, 0x101, 224}};

TEST_F(PortableGpuTest, SeparateGroupsOfEverySignatureAreBitEqual) {
  for (const ProblemTypes& types : AllTypes()) {
    for (const bool plain : {false, true}) {
      const SampleOptions options{
          .types = types, .row_scales = !plain, .c_padding = plain ? 0 : 3, .seed = 11};
      Operands operands(kRagged, options);
      RunHostM(operands, operands.groups(), {});
      ExpectExact(types, operands.groups(), Describe(options));
      EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups())) << Describe(options);
    }
  }
}

TEST_F(PortableGpuTest, StackedGroupsOfEverySignatureAreBitEqual) {
  const auto shapes = GroupsOf(77, 96, 5, 0, 130, 1, 128, 0, 19);
  for (const ProblemTypes& types : AllTypes()) {
    const SampleOptions options{.types = types,
                                .form = GroupForm::kStacked,
                                .row_scales = true,
                                .c_padding = 5,
                                .seed = 12};
    Operands operands(shapes, options);
    RunHostM(operands, operands.groups(), {.rows = 128, .columns = 64, .ctas = 3});
    ExpectExact(types, operands.groups(), Describe(options));
    EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups())) << Describe(options);
  }
}

TEST_F(PortableGpuTest, LongKAndTheTestShapesAreBitEqual) {
  for (const auto a : kActivations) {
    const ProblemTypes types{.a_type = a, .b_scale_layout = ScaleLayout::kBlocked};
    const GroupShape longest[] = {{33, 130, 28672}, {2, 70, 7168}};
    Operands operands(longest, {.types = types, .kind = DataKind::kExact});
    RunHostM(operands, operands.groups(), {});
    ExpectExact(types, operands.groups(), "long K");
  }
  for (const NamedShape& shape : kTestShapes) {
    const ProblemTypes types;
    Operands operands(shape.groups, {.types = types, .kind = DataKind::kContest});
    RunHostM(operands, operands.groups(), {.ctas = 16});
    ExpectExact(types, operands.groups(), std::string(shape.name));
  }
}

// The image that devices without a cubin compile for themselves.
TEST_F(PortableGpuTest, PtxImageGivesTheSameBits) {
  const KernelImage* ptx = nullptr;
  for (const KernelImage& image : KernelImages()) {
    if (image.unit == "portable" && image.form == ImageForm::kPtx) ptx = &image;
  }
  ASSERT_NE(ptx, nullptr);
  for (const auto a : kActivations) {
    const ProblemTypes types{.a_type = a, .c_type = OutputType::kFp32};
    Operands operands(kRagged, {.types = types, .kind = DataKind::kGeneral});
    RunHostM(operands, operands.groups(), {});
    const std::vector<uint32_t> expected = Outputs(types, operands.groups());
    operands.ClearOutput();
    device().Reset();
    DeviceOperands on_device(device(), operands);
    const TileList list = CutTiles(operands.groups(), 128, 128, 4);
    device().Launch(device().Function(*ptx, PortableEntry(a), kPortableSharedBytes), 4,
                    kPortableThreads, kPortableSharedBytes,
                    on_device.HostM(operands.groups(), list.tiles, list.cta_begin));
    on_device.DownloadOutput();
    EXPECT_EQ(Outputs(types, operands.groups()), expected);
  }
}

struct DeviceMCase {
  const char* what;
  MSource source;
  int64_t capacity;
  std::vector<int32_t> values;
};

// Of a stack of 4 x 140 rows.
std::vector<DeviceMCase> DeviceMCases() {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  return {
      {"counts", MSource::kCounts, 140, {140, 0, 1, 129}},
      {"all empty", MSource::kCounts, 140, {0, 0, 0, 0}},
      {"counts that lie", MSource::kCounts, 140, {kMost, -1, kLeast, 141}},
      {"offsets", MSource::kOffsets, 560, {0, 140, 280, 420, 560}},
      {"offsets with empty groups", MSource::kOffsets, 560, {0, 0, 1, 1, 257}},
      {"no rows", MSource::kOffsets, 560, {0, 0, 0, 0, 0}},
      {"not from 0", MSource::kOffsets, 560, {3, 9, 200, 420, 560}},
      {"falling", MSource::kOffsets, 560, {0, 300, 120, 310, 400}},
      {"beyond", MSource::kOffsets, 560, {0, 140, 280, 420, 561}},
      {"extremes", MSource::kOffsets, 560, {kLeast, kMost, kLeast, 7, -1}},
  };
}

TEST_F(PortableGpuTest, DeviceSideMIsWhatTheCpuMakesOfIt) {
  for (const ProblemTypes& types : AllTypes()) {
    for (const DeviceMCase& c : DeviceMCases()) {
      // Rows of one group's plane in another's place are padding in blocked layouts.
      if (c.source == MSource::kOffsets && types.a_scale_layout == ScaleLayout::kBlocked) continue;
      const SampleOptions options{.types = types,
                                  .kind = DataKind::kContest,
                                  .form = GroupForm::kStacked,
                                  .row_scales = true,
                                  .c_padding = 1};
      Operands operands(GroupsOf(150, 96, 140, 140, 140, 140), options);
      DeviceMProblem problem = operands.stack();
      problem.m_source = c.source;
      problem.capacity_rows = c.capacity;
      problem.m_values = c.values.data();
      std::vector<GroupProblem> groups(4);
      uint32_t expected_error = 0;
      cpu::ResolveDeviceM(problem, types, groups, &expected_error);
      for (const int32_t ctas : {1, 5}) {
        operands.ClearOutput();
        const std::string what = std::string(c.what) + ", " + Describe(options);
        EXPECT_EQ(RunDeviceM(operands, problem, ctas), expected_error) << what;
        ExpectExact(types, groups, what);
        EXPECT_TRUE(operands.OnlyOutputWritten(groups)) << what;
      }
    }
  }
}

TEST_F(PortableGpuTest, OffsetsPlaceBlockedScalesByLiveRows) {
  const std::vector<int32_t> m = {5, 0, 130, 128, 1, 0, 257};
  std::vector<GroupShape> shapes;
  std::vector<int32_t> offsets = {0};
  for (const int32_t rows : m) {
    shapes.push_back({rows, 70, 160});
    offsets.push_back(offsets.back() + rows);
  }
  const ProblemTypes types{.a_scale_layout = ScaleLayout::kBlocked,
                           .b_scale_layout = ScaleLayout::kBlocked};
  Operands operands(shapes, {.types = types, .form = GroupForm::kStacked});
  DeviceMProblem problem = operands.stack();
  problem.m_source = MSource::kOffsets;
  problem.capacity_rows = offsets.back();
  problem.m_values = offsets.data();
  EXPECT_EQ(RunDeviceM(operands, problem, 9), 0u);
  ExpectExact(types, operands.groups(), "offsets");
  EXPECT_TRUE(operands.OnlyOutputWritten(operands.groups()));
}

TEST_F(PortableGpuTest, ManyGroupsCrossManyWindows) {
  constexpr int32_t kGroups = 131072;
  std::vector<GroupShape> shapes;
  std::vector<int32_t> counts;
  std::vector<int32_t> offsets = {0};
  for (int32_t g = 0; g < kGroups; ++g) {
    shapes.push_back({1, 3, 32});
    counts.push_back(g % 5 == 0 || g == kGroups - 1 ? 1 : 0);
    offsets.push_back(offsets.back() + 1);
  }
  const ProblemTypes types;
  Operands operands(shapes,
                    {.types = types, .kind = DataKind::kContest, .form = GroupForm::kStacked});
  for (const MSource source : {MSource::kCounts, MSource::kOffsets}) {
    DeviceMProblem problem = operands.stack();
    problem.m_source = source;
    problem.capacity_rows = source == MSource::kCounts ? 1 : kGroups;
    problem.m_values = source == MSource::kCounts ? counts.data() : offsets.data();
    std::vector<GroupProblem> groups(kGroups);
    uint32_t error = 0;
    cpu::ResolveDeviceM(problem, types, groups, &error);
    ASSERT_EQ(error, 0u);
    operands.ClearOutput();
    EXPECT_EQ(RunDeviceM(operands, problem, 2 * device().multiprocessors()), 0u);
    ExpectExact(types, groups, "many groups");
    EXPECT_TRUE(operands.OnlyOutputWritten(groups));
  }
}

// General data: every bit hangs on the order of accumulation.
TEST_F(PortableGpuTest, BitsOfARowDependOnNothingBesideIt) {
  for (const auto a : kActivations) {
    const ProblemTypes types{.a_type = a, .c_type = OutputType::kFp32};
    const auto shapes = GroupsOf(200, 1056, 150, 33, 7);
    Operands operands(shapes, {.types = types,
                               .kind = DataKind::kGeneral,
                               .form = GroupForm::kStacked,
                               .row_scales = true});
    RunHostM(operands, operands.groups(), {});
    const std::vector<uint32_t> expected = Outputs(types, operands.groups());
    for (const Cut& cut : {Cut{1, 128, 5}, Cut{128, 64, 2}, Cut{48, 128, 1}, Cut{19, 64, 11}}) {
      operands.ClearOutput();
      RunHostM(operands, operands.groups(), cut);
      EXPECT_EQ(Outputs(types, operands.groups()), expected) << cut.rows << " " << cut.columns;
    }
    // Each row a group of its own, in reverse.
    std::vector<GroupProblem> alone;
    for (const GroupProblem& group : operands.groups()) {
      for (int32_t row = 0; row < group.m; ++row) {
        GroupProblem one = group;
        one.m = 1;
        one.a += ActivationBytes(a, row, group.k);
        if (one.a_scales != nullptr) {
          one.a_scales += ScalePlaneBytes(ScaleLayout::kLinear, row, group.k);
        }
        one.row_scale += row;
        one.c = static_cast<float*>(group.c) + row * group.c_stride;
        alone.insert(alone.begin(), one);
      }
    }
    operands.ClearOutput();
    RunHostM(operands, alone, {.ctas = 13});
    EXPECT_EQ(Outputs(types, operands.groups()), expected);
    // M on the device.
    DeviceMProblem problem = operands.stack();
    const int32_t offsets[] = {0, 150, 183, 190};
    problem.m_source = MSource::kOffsets;
    problem.capacity_rows = 190;
    problem.m_values = offsets;
    operands.ClearOutput();
    EXPECT_EQ(RunDeviceM(operands, problem, 6), 0u);
    EXPECT_EQ(Outputs(types, operands.groups()), expected);
  }
}

TEST_F(PortableGpuTest, NanScalesMakeTheirRowsNan) {
  for (const auto layout : kScaleLayouts) {
    for (const auto c : kOutputs) {
      const ProblemTypes types{.c_type = c, .a_scale_layout = layout};
      const GroupShape shape[] = {{130, 140, 96}};
      Operands operands(shape, {.types = types, .kind = DataKind::kContest});
      auto* const scales = const_cast<uint8_t*>(operands.groups()[0].a_scales);
      for (const auto& [row, block] : {std::pair(0, 0), {77, 5}, {129, 3}}) {
        scales[ScaleOffset(layout, row, block, 96)] = row % 2 == 0 ? 0x7F : 0xFF;
      }
      RunHostM(operands, operands.groups(), {});
      ExpectExact(types, operands.groups(), "NaN scales");
      EXPECT_TRUE(IsNanBits(OutputValue(c, LoadOutput(types, operands.groups()[0], 77, 139))));
      EXPECT_FALSE(IsNanBits(OutputValue(c, LoadOutput(types, operands.groups()[0], 76, 0))));
    }
  }
}

TEST_F(PortableGpuTest, InfinitiesNansAndSignedZerosOfActivationsGoThrough) {
  for (const auto a : {ActivationType::kFp16, ActivationType::kBf16}) {
    const uint16_t infinity = a == ActivationType::kFp16 ? 0x7C00 : 0x7F80;
    for (const auto c : kOutputs) {
      const ProblemTypes types{.a_type = a, .c_type = c};
      const GroupShape shape[] = {{20, 70, 96}};
      Operands operands(shape, {.types = types, .kind = DataKind::kContest});
      auto* const rows = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(operands.groups()[0].a));
      rows[3 * 96 + 5] = infinity;
      rows[4 * 96 + 95] = infinity | 0x8000;
      rows[5 * 96] = infinity | 1;
      for (int k = 0; k < 96; ++k) rows[6 * 96 + k] = 0x8000;
      RunHostM(operands, operands.groups(), {});
      ExpectExact(types, operands.groups(), "infinities");
    }
  }
}

TEST_F(PortableGpuTest, EpilogueRoundsOverflowsAndKeepsSubnormals) {
  for (const auto a : kActivations) {
    for (const auto c : kOutputs) {
      const ProblemTypes types{.a_type = a, .c_type = c};
      const GroupShape shape[] = {{40, 50, 64}};
      for (const float alpha :
           {1e30f, -1e38f, 3.0e-6f, 1e-40f, -0.0f, 0.1f, 65504.0f / 3,
            std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Operands operands(shape, {.types = types, .kind = DataKind::kContest, .row_scales = true});
        std::vector<GroupProblem> groups(operands.groups().begin(), operands.groups().end());
        groups[0].alpha = alpha;
        auto* const row_scale = const_cast<float*>(groups[0].row_scale);
        row_scale[0] = 1e-38f;
        row_scale[1] = 1e38f;
        row_scale[2] = std::numeric_limits<float>::quiet_NaN();
        row_scale[3] = 1.0f / 3;
        RunHostM(operands, groups, {});
        ExpectExact(types, groups, "alpha " + std::to_string(alpha));
      }
    }
  }
}

// Prints what kTensorCoreFrobeniusPerK of compare.cc is set from.
TEST_F(PortableGpuTest, GeneralDataStaysInTheBoundsOfTensorCores) {
  for (const auto a : kActivations) {
    for (const auto c : kOutputs) {
      for (const DataKind kind : {DataKind::kGeneral, DataKind::kNormal}) {
        for (const int32_t k : {32, 96, 256, 1024, 4096, 7168, 28672}) {
          const ProblemTypes types{.a_type = a, .c_type = c};
          const GroupShape shape[] = {{96, 160, k}};
          Operands operands(shape, {.types = types, .kind = kind, .seed = 5});
          RunHostM(operands, operands.groups(), {});
          const Verdict verdict = Verify(
              types, operands.groups(),
              {.check = Check::kBound, .accumulator = Accumulator::kTensorCore, .threads = 8});
          EXPECT_TRUE(verdict.pass) << k << " " << verdict.ToString();
          std::printf(
              "Frobenius a %d c %d kind %d K %5d: ratio %10.4f, (ratio - 1.75) / K %9.6f, "
              "worst share of bound %.4f\n",
              static_cast<int>(a), static_cast<int>(c), static_cast<int>(kind), k,
              verdict.frobenius_ratio, (verdict.frobenius_ratio - 1.75) / k, verdict.worst);
        }
      }
    }
  }
}

TEST_F(PortableGpuTest, AsManyCtasFitAsPromised) {
  const bool datacenter = device().capability() == 80 || device().capability() >= 90;
  if (!datacenter || device().capability() >= 110) GTEST_SKIP() << "promised for 8.0, 9.0, 10.0";
  for (const auto a : kActivations) {
    EXPECT_GE(device().Occupancy(Entry(a), kPortableThreads, kPortableSharedBytes),
              kPortableCtasPerMultiprocessor);
  }
}

}  // namespace
}  // namespace tetrad::cuda
