// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The simulated Hopper kernels, through driver calls: what they compute against the
// reference, and that what a device would not forgive breaks the context.
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/hopper_problem.h"
#include "kernels/float16.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad::cuda {
namespace {

using sm90::GemmArguments;
using sm90::PrepareArguments;
using sm90::PrepareGroup;
using sm90::TileEntry;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ActivationType kActivations[] = {ActivationType::kNvfp4, ActivationType::kFp16,
                                           ActivationType::kBf16};
constexpr OutputType kOutputs[] = {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32};

const sm90::Instance& InstanceNamed(std::string_view name) {
  for (const sm90::Instance& instance : sm90::kInstances) {
    if (name == instance.name) return instance;
  }
  ADD_FAILURE() << "no instance " << name;
  return sm90::kInstances[0];
}

Operands Make(std::span<const GroupShape> shapes, const ProblemTypes& types) {
  return Operands(shapes, {.types = types,
                           .form = GroupForm::kStacked,
                           .row_scales = true,
                           .c_padding = 3,
                           .seed = 11});
}

void Use(HopperProblem& problem, MSource source, std::span<const GroupShape> shapes) {
  std::vector<int32_t> offsets = {0}, counts;
  for (const GroupShape& shape : shapes) {
    offsets.push_back(offsets.back() + shape.m);
    // One of them negative, one beyond the capacity.
    counts.push_back(static_cast<int32_t>(std::ssize(counts)) * 25 - 20);
  }
  if (source == MSource::kHost) problem.UseHostM();
  if (source == MSource::kOffsets) problem.UseDeviceM(source, offsets.back(), offsets);
  if (source == MSource::kCounts) problem.UseDeviceM(source, shapes[0].m, counts);
}

constexpr auto kRagged = GroupsOf(141, 96, 0, 1, 7, 70, 130);
// For counts: of each group as many rows as there is room for.
constexpr auto kEqual = GroupsOf(141, 96, 70, 70, 70, 70, 70);

void ExpectCorrect(const ProblemTypes& types, const sm90::Instance& instance, MSource source) {
  const auto& shapes = source == MSource::kCounts ? kEqual : kRagged;
  Operands operands = Make(shapes, types);
  Gpu gpu;
  HopperProblem problem(gpu, operands, instance);
  Use(problem, source, shapes);
  const std::string what = absl::StrCat(
      instance.name, " a ", static_cast<int>(types.a_type), " c ", static_cast<int>(types.c_type),
      " layout ", static_cast<int>(types.c_layout), " source ", static_cast<int>(source));
  ASSERT_EQ(problem.Run(), CUDA_SUCCESS) << what << ": " << gpu.sim.last_fault();
  problem.ExpectCorrect(what);
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
}

TEST(SimulatedHopperGemmTest, EveryTypeAndSourceOfM) {
  size_t turn = 0;
  for (const ActivationType a : kActivations) {
    for (const OutputType c : kOutputs) {
      for (const OutputLayout layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
        for (const MSource source : {MSource::kHost, MSource::kOffsets, MSource::kCounts}) {
          const bool blocked = turn % 2 == 1;
          const bool nvfp4 = a == ActivationType::kNvfp4;
          const ProblemTypes types = {
              .a_type = a,
              .c_type = c,
              .a_scale_layout = nvfp4 && blocked ? ScaleLayout::kBlocked : ScaleLayout::kLinear,
              .b_scale_layout = blocked ? ScaleLayout::kBlocked : ScaleLayout::kLinear,
              .c_layout = layout};
          ExpectCorrect(types, sm90::kInstances[turn++ % std::size(sm90::kInstances)], source);
        }
      }
    }
  }
}

TEST(SimulatedHopperGemmTest, EveryInstance) {
  for (const sm90::Instance& instance : sm90::kInstances) {
    for (const ActivationType a : kActivations) {
      for (const MSource source : {MSource::kHost, MSource::kOffsets}) {
        ExpectCorrect({.a_type = a}, instance, source);
      }
    }
  }
}

TEST(SimulatedHopperGemmTest, MoreRowsThanTheCoverTable) {
  constexpr auto kShapes = GroupsOf(40, 32, 3, 700);
  for (const char* const name : {"decode", "wide"}) {
    Operands operands = Make(kShapes, {});
    Gpu gpu;
    HopperProblem problem(gpu, operands, InstanceNamed(name));
    Use(problem, MSource::kOffsets, kShapes);
    ASSERT_EQ(problem.Run(), CUDA_SUCCESS) << gpu.sim.last_fault();
    problem.ExpectCorrect(name);
  }
}

TEST(SimulatedHopperGemmTest, NothingToComputeWritesNothing) {
  Gpu gpu;
  GemmArguments arguments;
  arguments.tiles = gpu.Upload(std::vector<TileEntry>(1));
  arguments.tiles_per_cta = 1;
  arguments.live.m_source = MSource::kHost;
  const sm90::Instance& instance = InstanceNamed("decode");
  const auto shared = sm90::SharedBytes(instance);
  EXPECT_EQ(gpu.Launch(gpu.Function("tetrad_sm90_fp16_decode", shared),
                       {.threads = static_cast<uint32_t>(sm90::Threads(instance)),
                        .shared_bytes = static_cast<uint32_t>(shared)},
                       arguments),
            CUDA_SUCCESS);
  EXPECT_EQ(gpu.Synchronize(), CUDA_SUCCESS) << gpu.sim.last_fault();
}

// A launch that is right but for one thing.
struct Wrong {
  std::string what;
  MSource source;
  std::function<void(Gpu&, HopperProblem&)> make;
  std::string why;
};

TileEntry* FirstTile(HopperProblem& problem) { return &problem.tiles[0]; }

Wrong WrongTile(std::string what, std::function<void(TileEntry&)> change, std::string why) {
  return {std::move(what), MSource::kHost,
          [change](Gpu& gpu, HopperProblem& problem) {
            change(*FirstTile(problem));
            problem.gemm.tiles = gpu.Upload(problem.tiles);
          },
          std::move(why)};
}

// `change`s the map of every width.
Wrong WrongMap(std::string what, std::function<void(TensorMapSpec&)> change, std::string why) {
  return {std::move(what), MSource::kHost,
          [change](Gpu&, HopperProblem& problem) {
            for (size_t i = 0; i < sm90::kMaxWidths && problem.instance.widths[i] > 0; ++i) {
              TensorMapSpec spec = TokenMap(problem.prepare.tokens, problem.prepare.rows,
                                            problem.prepare.pitch, problem.instance.widths[i]);
              change(spec);
              problem.SetMap(i, spec);
            }
          },
          std::move(why)};
}

Wrong WrongArgument(std::string what, MSource source, std::function<void(GemmArguments&)> change,
                    std::string why) {
  return {std::move(what), source, [change](Gpu&, HopperProblem& problem) { change(problem.gemm); },
          std::move(why)};
}

std::vector<Wrong> EveryWrongLaunch() {
  constexpr MSource kHost = MSource::kHost, kLive = MSource::kOffsets;
  const char* const refused = "does not take";
  const char* const unmapped = "mapped";
  return {
      WrongTile(
          "width", [](TileEntry& t) { t.width = 3; }, refused),
      WrongTile(
          "width out of all", [](TileEntry& t) { t.width = 4; }, refused),
      WrongTile(
          "rows", [](TileEntry& t) { t.rows = 129; }, refused),
      WrongTile(
          "no rows", [](TileEntry& t) { t.rows = 0; }, refused),
      WrongTile(
          "columns", [](TileEntry& t) { t.columns = 0; }, refused),
      WrongTile(
          "steps", [](TileEntry& t) { t.steps = 0; }, refused),
      WrongTile(
          "block", [](TileEntry& t) { t.block = 1 << 20; }, unmapped),
      WrongTile(
          "group", [](TileEntry& t) { t.group = 1 << 20; }, unmapped),
      WrongTile(
          "scale_row", [](TileEntry& t) { t.scale_row = 1 << 20; }, unmapped),
      WrongTile(
          "c", [](TileEntry& t) { t.c = 1 << 30; }, unmapped),
      WrongTile(
          "c between elements", [](TileEntry& t) { t.c += 1; }, "a misaligned output"),
      WrongTile(
          "c_stride", [](TileEntry& t) { t.c_stride = 1 << 20; }, unmapped),
      WrongMap(
          "box", [](TensorMapSpec& s) { s.box[1] -= 8; }, "does not suit"),
      WrongMap(
          "box along K", [](TensorMapSpec& s) { s.box[0] = 32; }, "does not suit"),
      WrongMap(
          "swizzle", [](TensorMapSpec& s) { s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B; },
          "does not suit"),
      WrongMap(
          "type", [](TensorMapSpec& s) { s.type = CU_TENSOR_MAP_DATA_TYPE_UINT8; },
          "does not suit"),
      WrongMap(
          "more rows than there are", [](TensorMapSpec& s) { s.dims[1] += 1; }, unmapped),
      WrongMap(
          "another address", [](TensorMapSpec& s) { s.address += 64; }, unmapped),
      WrongArgument(
          "no map", kHost, [](GemmArguments& a) { a.tokens[0] = a.tokens[1] = {}; },
          "no tensor map"),
      WrongArgument(
          "weights", kHost, [](GemmArguments& a) { a.weights += 4608; }, unmapped),
      WrongArgument(
          "weights between", kHost, [](GemmArguments& a) { a.weights += 8; }, "misaligned weights"),
      WrongArgument(
          "alpha", kHost, [](GemmArguments& a) { a.alpha = nullptr; }, unmapped),
      WrongArgument(
          "c", kHost, [](GemmArguments& a) { a.c += 64; }, unmapped),
      WrongArgument(
          "types", kHost, [](GemmArguments& a) { a.types.a_type = ActivationType::kNvfp4; },
          "another type"),
      WrongArgument(
          "layout", kHost, [](GemmArguments& a) { a.types.c_type = OutputType::kFp32; }, unmapped),
      WrongArgument(
          "no end", kHost, [](GemmArguments& a) { a.tiles_per_cta = 1; }, "has no end"),
      WrongArgument(
          "no lists", kHost, [](GemmArguments& a) { a.tiles = nullptr; }, unmapped),
      WrongArgument(
          "no state", kHost,
          [](GemmArguments& a) {
            a.state = nullptr;
            a.begins = true;
          },
          unmapped),
      WrongArgument(
          "no error word", kLive, [](GemmArguments& a) { a.state = nullptr; }, unmapped),
      WrongArgument(
          "too short", kLive, [](GemmArguments& a) { a.tiles_per_cta = 2; }, "are too short"),
      WrongArgument(
          "scratch", kLive, [](GemmArguments& a) { a.tiles_per_cta += 1; }, unmapped),
      WrongArgument(
          "covers", kLive, [](GemmArguments& a) { a.live.covers += 4; }, unmapped),
      WrongArgument(
          "m_values", kLive, [](GemmArguments& a) { a.live.group_count += 8; }, unmapped),
      WrongArgument(
          "n", kLive, [](GemmArguments& a) { a.live.n = 0; }, "a live shape"),
      {"scratch that is read only", kLive,
       [](Gpu& gpu, HopperProblem& problem) {
         gpu.SetWritable(reinterpret_cast<CUdeviceptr>(problem.gemm.live.lists), false);
       },
       "mapped for reading"},
      {"a cover that is too small", kLive,
       [](Gpu& gpu, HopperProblem& problem) {
         std::vector<uint32_t> covers = sm90::CoverTable(problem.instance, problem.prepare.k);
         covers[70] = 1;  // 24 rows
         problem.gemm.live.covers = gpu.Upload(covers);
       },
       "a cover of 24 rows for 70"},
      {"a cover with an empty tile", kLive,
       [](Gpu& gpu, HopperProblem& problem) {
         std::vector<uint32_t> covers = sm90::CoverTable(problem.instance, problem.prepare.k);
         covers[7] = 2;
         problem.gemm.live.covers = gpu.Upload(covers);
       },
       "a cover of 48 rows for 7"},
  };
}

TEST(SimulatedHopperGemmTest, AWrongLaunchBreaksTheContext) {
  for (const Wrong& wrong : EveryWrongLaunch()) {
    SCOPED_TRACE(wrong.what);
    Operands operands = Make(kRagged, {});
    Gpu gpu;
    HopperProblem problem(gpu, operands, InstanceNamed("skewed"));
    Use(problem, wrong.source, kRagged);
    wrong.make(gpu, problem);
    EXPECT_EQ(problem.Run(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THAT(gpu.sim.last_fault(), HasSubstr("tetrad_sm90_fp16_skewed"));
    EXPECT_THAT(gpu.sim.last_fault(), HasSubstr(wrong.why));
  }
}

// Tokens behind the last row or K of the tensor are zeros, whatever lies there.
TEST(SimulatedHopperGemmTest, TokensBeyondTheTensorAreZeros) {
  constexpr auto kShapes = GroupsOf(8, 32, 4);
  Operands operands = Make(kShapes, {.a_type = ActivationType::kFp16});
  Gpu gpu;
  HopperProblem problem(gpu, operands, InstanceNamed("decode"));
  problem.UseHostM();
  TensorMapSpec spec = TokenMap(reinterpret_cast<const uint16_t*>(problem.prepare.a), 4, 32, 8);
  spec.dims[1] = 3;
  problem.SetMap(0, spec);
  ASSERT_EQ(problem.Run(), CUDA_SUCCESS) << gpu.sim.last_fault();
  const int64_t stride = operands.stack().c_stride;
  const auto c = gpu.Download(reinterpret_cast<const uint16_t*>(problem.gemm.c), 4 * stride);
  for (int64_t column = 0; column < 8; ++column) {
    EXPECT_EQ(c[static_cast<size_t>(3 * stride + column)] & 0x7FFF, 0) << column;
  }
}

TEST(SimulatedPackTest, PacksAsTheHostDoesAndBack) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    const sm90::SampleWeights weights =
        sm90::DrawWeights({.groups = 2, .n = 133, .k = 160, .scale_layout = layout}, 5);
    const std::vector<uint8_t> expected = sm90::Packed(weights);
    Gpu gpu;
    auto* const packed = reinterpret_cast<uint8_t*>(gpu.Allocate(std::ssize(expected)));
    const sm90::PackArguments pack = {gpu.Upload(weights.codes), gpu.Upload(weights.scales), packed,
                                      weights.stack};
    const LaunchShape shape = {.grid = 3, .threads = sm90::kPackThreads};
    ASSERT_EQ(gpu.Launch(gpu.Function(sm90::kPackEntry), shape, pack), CUDA_SUCCESS);
    EXPECT_EQ(gpu.Download(packed, std::ssize(expected)), expected);

    auto* const codes = reinterpret_cast<uint8_t*>(gpu.Allocate(std::ssize(weights.codes)));
    auto* const scales = reinterpret_cast<uint8_t*>(gpu.Allocate(std::ssize(weights.scales)));
    const sm90::UnpackArguments unpack = {packed, codes, scales, weights.stack};
    ASSERT_EQ(gpu.Launch(gpu.Function(sm90::kUnpackEntry), shape, unpack), CUDA_SUCCESS);
    EXPECT_EQ(gpu.Download(codes, std::ssize(weights.codes)), weights.codes);
    EXPECT_EQ(gpu.Download(scales, std::ssize(weights.scales)), sm90::WithoutJunk(weights).scales);

    sm90::PackArguments wrong = pack;
    wrong.packed += 16;
    ASSERT_EQ(gpu.Launch(gpu.Function(sm90::kPackEntry), shape, wrong), CUDA_SUCCESS);
    EXPECT_EQ(gpu.Synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THAT(gpu.sim.last_fault(), HasSubstr("its end is not mapped"));
  }
}

// Two groups of other K than the pitch, blocked scales.
struct Prepared {
  static constexpr int32_t kPitch = 104, kFirstK = 96, kSecondK = 32, kRows = 3;
  explicit Prepared(Gpu& gpu) {
    // Two rows of the first group, one of the second: code 9 is -0.5, scale 0x40 is 2.
    std::vector<uint8_t> codes(2 * kFirstK / 2 + kSecondK / 2, 0x99);
    codes[0] = 0x8A;  // -1 and -0
    std::vector<uint8_t> scales(2 * 2 * kScaleTileBytes, kUe4m3Nan);
    const auto scale = [&](int64_t plane, int64_t row, int64_t block, int64_t k) -> uint8_t& {
      return scales[static_cast<size_t>(plane + BlockedScaleOffset(row, block, k))];
    };
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t block = 0; block < kFirstK / 16; ++block) scale(0, row, block, kFirstK) = 0x40;
    }
    scale(0, 1, 5, kFirstK) = 0xFF;  // bit 7 is ignored: NaN
    scale(2 * kScaleTileBytes, 0, 0, kSecondK) = 0xC0;
    scale(2 * kScaleTileBytes, 0, 1, kSecondK) = 0;
    scales.resize(
        static_cast<size_t>(2 * kScaleTileBytes + BlockedScaleOffset(0, 1, kSecondK) + 1));
    groups = {{.row = 0, .k = kFirstK},
              {.a = kFirstK, .a_scales = 2 * kScaleTileBytes, .row = 2, .k = kSecondK}};
    arguments.a = gpu.Upload(codes);
    arguments.a_scales = gpu.Upload(scales);
    arguments.tokens = gpu.Upload(std::vector<uint16_t>(kRows * kPitch, 0xABCD));
    arguments.groups = gpu.Upload(groups);
    arguments.state = gpu.Upload(std::vector<LaunchState>(1));
    arguments.rows = kRows;
    arguments.pitch = kPitch;
    arguments.group_count = 2;
    arguments.a_scale_layout = ScaleLayout::kBlocked;
  }
  std::vector<PrepareGroup> groups;
  PrepareArguments arguments;
};

CUresult RunPrepare(Gpu& gpu, const PrepareArguments& arguments) {
  EXPECT_EQ(
      gpu.Launch(gpu.Function(sm90::kPrepareEntry), {.threads = sm90::kPrepareThreads}, arguments),
      CUDA_SUCCESS);
  return gpu.Synchronize();
}

TEST(SimulatedPrepareTest, Nvfp4BecomesFp16OfItsGroupsK) {
  Gpu gpu;
  const Prepared prepared(gpu);
  ASSERT_EQ(RunPrepare(gpu, prepared.arguments), CUDA_SUCCESS) << gpu.sim.last_fault();
  const auto tokens = gpu.Download(prepared.arguments.tokens, Prepared::kRows * Prepared::kPitch);
  const auto token = [&](int64_t row, int64_t k) {
    return tokens[static_cast<size_t>(row * Prepared::kPitch + k)];
  };
  EXPECT_EQ(token(0, 0), EncodeFp16(-2));
  EXPECT_EQ(token(0, 1), 0x8000) << "-0";
  EXPECT_EQ(token(0, 2), EncodeFp16(-1));
  EXPECT_EQ(token(0, 95), EncodeFp16(-1));
  EXPECT_EQ(token(0, 96), 0) << "the pitch ends before the next 64";
  EXPECT_EQ(token(0, 103), 0);
  EXPECT_EQ(token(1, 79), EncodeFp16(-1));
  EXPECT_EQ(token(1, 80), kCanonicalNanFp16);
  EXPECT_EQ(token(2, 15), EncodeFp16(-1));
  EXPECT_EQ(token(2, 16), 0x8000);
  EXPECT_EQ(token(2, 32), 0);
  EXPECT_EQ(token(2, 63), 0);
  EXPECT_EQ(token(2, 64), 0xABCD) << "not written";
  EXPECT_NE(gpu.Download(prepared.arguments.state, 1)[0].begun_ns, 0u);
}

TEST(SimulatedPrepareTest, AWrongLaunchBreaksTheContext) {
  const struct {
    const char* what;
    std::function<void(Gpu&, Prepared&)> make;
    const char* why;
  } wrong[] = {
      {"rows", [](Gpu&, Prepared& p) { p.arguments.rows = 4; }, "mapped"},
      {"pitch", [](Gpu&, Prepared& p) { p.arguments.pitch = 136; }, "mapped"},
      {"pitch of no whole 16 bytes", [](Gpu&, Prepared& p) { p.arguments.pitch = 100; }, "pitch"},
      {"pitch below K", [](Gpu&, Prepared& p) { p.arguments.pitch = 64; }, "k=96 of pitch 64"},
      {"no state", [](Gpu&, Prepared& p) { p.arguments.state = nullptr; }, "mapped"},
      {"no scales", [](Gpu&, Prepared& p) { p.arguments.a_scales = nullptr; }, "scales"},
      {"a", [](Gpu&, Prepared& p) { p.arguments.a += 16; }, "mapped"},
      {"a between", [](Gpu&, Prepared& p) { p.arguments.a += 8; }, "misaligned"},
      {"rows of no group", [](Gpu&, Prepared& p) { p.arguments.group_count = 0; }, "of no group"},
      {"the table", [](Gpu&, Prepared& p) { p.arguments.group_count = 3; }, "mapped"},
      {"groups",
       [](Gpu& gpu, Prepared& p) {
         p.groups[1].row = 9;
         p.arguments.groups = gpu.Upload(p.groups);
       },
       "do not ascend"},
      {"live, with a table",
       [](Gpu& gpu, Prepared& p) {
         p.arguments.m_source = MSource::kCounts;
         p.arguments.m_values = gpu.Upload(std::vector<int32_t>{1, 1});
         p.arguments.capacity_rows = 1;
         p.arguments.k = 32;
       },
       "a table of groups"},
  };
  for (const auto& row : wrong) {
    SCOPED_TRACE(row.what);
    Gpu gpu;
    Prepared prepared(gpu);
    row.make(gpu, prepared);
    EXPECT_EQ(RunPrepare(gpu, prepared.arguments), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THAT(gpu.sim.last_fault(), HasSubstr(row.why));
  }
}

}  // namespace
}  // namespace tetrad::cuda
