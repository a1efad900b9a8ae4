// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sm90GemmGpuTest: the Hopper GEMM on a device of capability 9.0, for tests. Launches any
// groups of one stack in any instance, however they are cut into tiles, and judges C and
// what lies around it. M on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/compare.h"
#include "kernels/cuda/device_operands.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/reference.h"
#include "kernels/sample.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/pack.h"

namespace tetrad::sm90 {

inline constexpr ActivationType kActivations[] = {ActivationType::kFp16, ActivationType::kBf16};

struct Output {
  OutputType type;
  OutputLayout layout;
};
inline constexpr Output kOutputs[] = {
    {OutputType::kFp16, OutputLayout::kRowMajor}, {OutputType::kFp16, OutputLayout::kColumnMajor},
    {OutputType::kBf16, OutputLayout::kRowMajor}, {OutputType::kBf16, OutputLayout::kColumnMajor},
    {OutputType::kFp32, OutputLayout::kRowMajor}, {OutputType::kFp32, OutputLayout::kColumnMajor}};

inline ProblemTypes TypesOf(ActivationType a, const Output& output) {
  return {.a_type = a,
          .c_type = output.type,
          .b_scale_layout =
              output.type == OutputType::kBf16 ? ScaleLayout::kBlocked : ScaleLayout::kLinear,
          .c_layout = output.layout};
}

inline std::string Describe(const ProblemTypes& types) {
  constexpr const char* kActivationNames[] = {"nvfp4", "fp16", "bf16"};
  constexpr const char* kOutputNames[] = {"fp16", "bf16", "fp32"};
  return absl::StrCat(kActivationNames[static_cast<size_t>(types.a_type)], " to ",
                      kOutputNames[static_cast<size_t>(types.c_type)],
                      types.c_layout == OutputLayout::kRowMajor ? " rows" : " columns");
}

// Where C lies: the stride from line to line is the least multiple of `multiple` that has
// room for a line and `spare` elements; the first element is `shift` of those after the base.
struct PlaceOfC {
  int64_t multiple = 1;
  int64_t spare = 0;
  int64_t shift = 0;
  bool row_scales = true;
};

inline std::string Describe(const PlaceOfC& place) {
  return absl::StrCat("stride a multiple of ", place.multiple, " with ", place.spare,
                      " to spare, shifted by ", place.shift,
                      place.row_scales ? ", row scales" : "");
}

inline int32_t WidthsOf(const Instance& instance) {
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

inline std::string Describe(const Cut& cut) {
  return absl::StrCat(cut.instance->name, " width ", cut.width, " ctas ", cut.ctas, " first ",
                      cut.first_rows, " most ", cut.most_rows);
}

// Every instance, with each of its widths alone and all of them in one list.
inline std::vector<Cut> EveryCut() {
  std::vector<Cut> cuts;
  for (const Instance& instance : kInstances) {
    for (int32_t width = -1; width < WidthsOf(instance); ++width) {
      cuts.push_back({.instance = &instance, .width = width});
    }
  }
  return cuts;
}

struct CutLists {
  std::vector<TileEntry> entries;
  int32_t tiles_per_cta = 0;
};

// Of groups of one stack. CTA i gets tiles i, i + ctas, ...
inline CutLists CutGroups(const ProblemTypes& types, std::span<const GroupProblem> groups,
                          const DeviceMProblem& stack, const Cut& cut) {
  const Instance& instance = *cut.instance;
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  const int64_t element_bytes = OutputElementBytes(types.c_type);
  std::vector<std::vector<TileEntry>> lists(static_cast<size_t>(cut.ctas));
  size_t count = 0;
  int32_t turn = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupProblem& group = groups[g];
    const int64_t stack_row =
        (group.a - stack.a) / ActivationBytes(ActivationType::kFp16, 1, group.k);
    const auto matrix = (group.b - stack.b) / CodeBytes(group.n, group.k);
    const int64_t c = static_cast<const std::byte*>(group.c) - static_cast<std::byte*>(stack.c);
    const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
    for (int32_t column = 0; column < group.n; column += kBlockRows * instance.strips) {
      int32_t rows = 0;
      for (int32_t row = 0; row < group.m; row += rows) {
        const int32_t which = cut.width >= 0 ? cut.width : turn++ % WidthsOf(instance);
        rows = std::min({instance.widths[which], cut.most_rows, group.m - row});
        if (row == 0 && cut.first_rows > 0) rows = std::min(rows, cut.first_rows);
        const int64_t element =
            row_major ? row * group.c_stride + column : column * group.c_stride + row;
        const auto block = matrix * PackedBlocks(group.n, group.k) + column / kBlockRows * steps;
        lists[count++ % lists.size()].push_back({.block = static_cast<uint32_t>(block),
                                                 .token = static_cast<int32_t>(stack_row + row),
                                                 .rows = rows,
                                                 .columns = group.n - column,
                                                 .steps = steps,
                                                 .group = static_cast<int32_t>(g),
                                                 .scale_row = static_cast<int32_t>(stack_row + row),
                                                 .width = which,
                                                 .c = c + element * element_bytes,
                                                 .c_stride = group.c_stride});
      }
    }
  }
  CutLists result;
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
inline std::vector<uint32_t> Outputs(const ProblemTypes& types,
                                     std::span<const GroupProblem> groups) {
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

// What sample.h fills C and the margin around it with.
inline constexpr std::byte kPattern{0xFD};
inline constexpr int64_t kMargin = 64;

// C with all that lies between and around its elements.
inline std::span<const std::byte> WholeOutput(const Operands& operands) {
  const DeviceMProblem& stack = operands.stack();
  int64_t lines = stack.n;
  if (operands.types().c_layout == OutputLayout::kRowMajor) {
    lines = 0;
    for (const GroupProblem& group : operands.groups()) lines += group.m;
  }
  const int64_t bytes = lines * stack.c_stride * OutputElementBytes(operands.types().c_type);
  return {static_cast<const std::byte*>(stack.c) - kMargin,
          static_cast<size_t>(bytes + 2 * kMargin)};
}

// Where a byte that is none of the groups' outputs was written first.
inline std::string FirstStray(const Operands& operands, std::span<const GroupProblem> groups) {
  const std::span<const std::byte> whole = WholeOutput(operands);
  const int64_t bytes = OutputElementBytes(operands.types().c_type);
  const bool row_major = operands.types().c_layout == OutputLayout::kRowMajor;
  for (const std::byte& byte : whole) {
    if (byte == kPattern) continue;
    const auto is_output = [&](const GroupProblem& group) {
      const int64_t at = &byte - static_cast<const std::byte*>(group.c);
      const int64_t line = at / bytes / group.c_stride;
      const int64_t along = at / bytes % group.c_stride;
      return at >= 0 && line < (row_major ? group.m : group.n) &&
             along < (row_major ? group.n : group.m);
    };
    if (std::ranges::any_of(groups, is_output)) continue;
    const int64_t at = &byte - static_cast<const std::byte*>(operands.stack().c);
    const int64_t element = at >= 0 ? at / bytes : (at - bytes + 1) / bytes;
    return absl::StrCat("byte ", at, " of C, element ", element, " of stride ",
                        operands.stack().c_stride);
  }
  return "nowhere";
}

// The groups as they are, or with C shifted by some elements along its lines.
inline std::vector<GroupProblem> Copy(const Operands& operands, int64_t shift = 0) {
  std::vector<GroupProblem> groups(operands.groups().begin(), operands.groups().end());
  const int64_t bytes = shift * OutputElementBytes(operands.types().c_type);
  for (GroupProblem& group : groups) group.c = static_cast<std::byte*>(group.c) + bytes;
  return groups;
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

  // Copies the operands, of one stack, to the device, which Run() then computes with.
  void Place(const Operands& operands) {
    device().Reset();
    on_device_.emplace(device(), operands);
    operands_ = &operands;
    packed_ = UploadPacked(operands);
  }

  // Computes `groups`, of the operands placed last, into the host's C. Nothing of the
  // operands but C may have changed since.
  void Run(std::span<const GroupProblem> groups, const Cut& cut, bool begins = false) {
    const ProblemTypes& types = operands_->types();
    DeviceMProblem stack = operands_->stack();
    std::vector<float> alphas;
    std::vector<int32_t> offsets(groups.size() + 1);
    for (const GroupProblem& group : groups) alphas.push_back(group.alpha);
    stack.groups = static_cast<int32_t>(groups.size());
    stack.alpha = alphas.data();
    stack.m_source = MSource::kOffsets;
    stack.m_values = offsets.data();
    const cuda::LaunchArguments at = on_device_->DeviceM(stack);  // addresses

    const CutLists lists = CutGroups(types, groups, operands_->stack(), cut);
    GemmArguments arguments;
    MakeTokenMaps(at.a, *operands_, *cut.instance, &arguments);
    if (HasFatalFailure()) return;
    arguments.weights = packed_;
    arguments.c = at.c;
    arguments.alpha = at.alpha;
    arguments.row_scale = at.row_scale;
    arguments.tiles = reinterpret_cast<const TileEntry*>(Upload(std::span(lists.entries)));
    arguments.tiles_per_cta = lists.tiles_per_cta;
    arguments.state = at.state;
    arguments.types = types;
    arguments.begins = begins;
    const std::string entry =
        absl::StrCat("tetrad_sm90_", types.a_type == ActivationType::kFp16 ? "fp16_" : "bf16_",
                     cut.instance->name);
    const int32_t shared = SharedBytes(*cut.instance);
    const cuda::KernelImage& image =
        *cuda::ChooseImage(cuda::HopperImages(), Unit(types.a_type), 90);
    on_device_->UploadOutput();
    device().Launch(device().Function(image, entry.c_str(), shared), cut.ctas,
                    Threads(*cut.instance), shared, arguments);
    on_device_->DownloadOutput();
  }
  cuda::LaunchState ReadState() { return on_device_->ReadState(); }

  // Runs every cut of the operands' groups, or of `groups` of them; the outputs of each must
  // pass, which those with the bytes of one that passed do.
  void ExpectEveryCutPasses(Operands& operands, std::span<const GroupProblem> groups,
                            const std::string& what) {
    const ProblemTypes& types = operands.types();
    const std::span<const std::byte> whole = WholeOutput(operands);
    std::vector<std::byte> passed;
    Place(operands);
    for (const Cut& cut : EveryCut()) {
      operands.ClearOutput();
      Run(groups, cut);
      if (std::ranges::equal(whole, passed)) continue;
      const std::string run = absl::StrCat(what, ", ", Describe(types), ", ", Describe(cut));
      const bool only = operands.OnlyOutputWritten(groups);
      EXPECT_TRUE(only) << run << ": written beside the outputs: " << FirstStray(operands, groups);
      const Check check = IsExact(operands.kind()) ? Check::kBits : Check::kBound;
      const Verdict verdict = Verify(
          types, groups, {.check = check, .accumulator = Accumulator::kTensorCore, .threads = 8});
      EXPECT_TRUE(verdict.pass) << run << "\n" << verdict.ToString();
      if (verdict.pass && only) passed.assign(whole.begin(), whole.end());
    }
  }

  // One shape in both kinds of data, with each type of tokens and these outputs.
  void ExpectShapePasses(std::span<const GroupShape> shapes, const PlaceOfC& place,
                         std::span<const Output> outputs = kOutputs) {
    int64_t rows = 0;
    for (const GroupShape& shape : shapes) rows += shape.m;
    for (const ActivationType a : kActivations) {
      for (const Output& output : outputs) {
        const int64_t line = output.layout == OutputLayout::kRowMajor ? shapes[0].n : rows;
        for (const DataKind kind : {DataKind::kExact, DataKind::kGeneral}) {
          Operands operands(
              shapes,
              {.types = TypesOf(a, output),
               .kind = kind,
               .form = GroupForm::kStacked,
               .row_scales = place.row_scales,
               .c_padding = RoundUp(line + place.spare + place.shift, place.multiple) - line,
               .seed = 31});
          ExpectEveryCutPasses(operands, Copy(operands, place.shift),
                               absl::StrCat("n ", shapes[0].n, " k ", shapes[0].k, " kind ",
                                            static_cast<int>(kind), ", ", Describe(place)));
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

  std::optional<cuda::DeviceOperands> on_device_;
  const Operands* operands_ = nullptr;
  const uint8_t* packed_ = nullptr;
};

}  // namespace tetrad::sm90
