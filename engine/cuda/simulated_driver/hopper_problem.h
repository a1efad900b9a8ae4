// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// For the tests of the simulated Hopper kernels, through driver calls alone: a device
// (Gpu), and on it one grouped GEMM with everything its launches need (HopperProblem),
// which a test may then make wrong.
//
// What is uploaded ends where its mapping ends, so that an access beyond is illegal.
// Not thread-safe; what fails here is a failure of the test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/simulated_driver.h"
#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/sample.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/live_tiles.h"
#include "kernels/sm90/pack.h"
#include "kernels/sm90/prepare.h"
#include "kernels/sm90/tiles.h"

namespace tetrad::cuda {

struct LaunchShape {
  uint32_t grid = 1;
  uint32_t threads = 32;
  uint32_t shared_bytes = 0;
  bool programmatic = false;
};

class Gpu {
 public:
  explicit Gpu(int capability = 90, int devices = 1)
      : sim({.devices = devices, .capability = capability, .granularity = kGranule}),
        cu(sim.driver()) {
    EXPECT_EQ(cu.DevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.CtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.ModuleLoadData(&module, "an image"), CUDA_SUCCESS);
  }
  ~Gpu() {
    cu.CtxSynchronize();
    while (!blocks_.empty()) Free(blocks_.back().begin);
    EXPECT_EQ(cu.ModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cu.DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  }
  Gpu(const Gpu&) = delete;

  CUdeviceptr Allocate(int64_t bytes) {
    Block block;
    const auto used = static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), kOperandAlignment));
    block.bytes = (used + kGranule - 1) / kGranule * kGranule;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    EXPECT_EQ(cu.MemCreate(&block.handle, block.bytes, &properties, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemAddressReserve(&block.begin, block.bytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemMap(block.begin, block.bytes, 0, block.handle, 0), CUDA_SUCCESS);
    blocks_.push_back(block);
    const CUdeviceptr address = block.begin + block.bytes - used;
    SetWritable(address, true);
    return address;
  }
  void Free(CUdeviceptr address) {
    const auto block = BlockOf(address);
    EXPECT_EQ(cu.MemUnmap(block->begin, block->bytes), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemAddressFree(block->begin, block->bytes), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemRelease(block->handle), CUDA_SUCCESS);
    blocks_.erase(block);
  }
  void SetWritable(CUdeviceptr address, bool writable) {
    const auto block = BlockOf(address);
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ};
    EXPECT_EQ(cu.MemSetAccess(block->begin, block->bytes, &access, 1), CUDA_SUCCESS);
  }
  template <class T>
  T* Upload(const T* from, int64_t count) {
    const int64_t bytes = count * int64_t{sizeof(T)};
    const CUdeviceptr to = Allocate(bytes);
    if (count > 0) {
      EXPECT_EQ(cu.MemcpyHtoDAsync(to, from, static_cast<size_t>(bytes), stream), CUDA_SUCCESS);
    }
    return reinterpret_cast<T*>(to);
  }
  template <class T>
  T* Upload(const std::vector<T>& from) {
    return Upload(from.data(), std::ssize(from));
  }
  template <class T>
  std::vector<T> Download(const T* from, int64_t count) {
    std::vector<T> to(static_cast<size_t>(count));
    EXPECT_EQ(cu.MemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from),
                                 static_cast<size_t>(count) * sizeof(T), stream),
              CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamSynchronize(stream), CUDA_SUCCESS);
    return to;
  }
  CUfunction Function(const std::string& entry, int32_t shared_bytes = 0) {
    CUfunction function = nullptr;
    EXPECT_EQ(cu.ModuleGetFunction(&function, module, entry.c_str()), CUDA_SUCCESS) << entry;
    if (shared_bytes > 0) {
      EXPECT_EQ(cu.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    shared_bytes),
                CUDA_SUCCESS);
    }
    return function;
  }
  template <class... Arguments>
  CUresult Launch(CUfunction function, const LaunchShape& shape, const Arguments&... arguments) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {.gridDimX = shape.grid,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = shape.threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = shape.shared_bytes,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = shape.programmatic ? 1u : 0u};
    void* parameters[] = {const_cast<Arguments*>(&arguments)...};
    return cu.LaunchKernelEx(&config, function, parameters, nullptr);
  }
  // Waits; what is illegal of work so far breaks the context here.
  CUresult Synchronize() { return cu.StreamSynchronize(stream); }

  static constexpr size_t kGranule = 4096;
  SimulatedDriver sim;
  const CudaDriver& cu;
  CUstream stream = nullptr;
  CUmodule module = nullptr;

 private:
  struct Block {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr begin = 0;
    size_t bytes = 0;
  };
  std::vector<Block>::iterator BlockOf(CUdeviceptr address) {
    return std::ranges::find_if(blocks_, [&](const Block& block) {
      return address >= block.begin && address < block.begin + block.bytes;
    });
  }

  CUcontext context_ = nullptr;
  std::vector<Block> blocks_;
};

inline TensorMapSpec TokenMap(const uint16_t* tokens, int64_t rows, int64_t k, int32_t width) {
  return {.type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
          .rank = 2,
          .address = reinterpret_cast<uint64_t>(tokens),
          .dims = {static_cast<uint64_t>(k), static_cast<uint64_t>(rows)},
          .strides = {static_cast<uint64_t>(k) * 2},
          .box = {sm90::kBlockK, static_cast<uint32_t>(width)},
          .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
}

// Stacked operands; NVFP4 and BF16 tokens are prepared, FP16 ones read where they are.
class HopperProblem {
 public:
  HopperProblem(Gpu& gpu, Operands& operands, const sm90::Instance& instance)
      : instance(instance), gpu_(gpu), operands_(operands) {
    for (const GroupProblem& group : operands.groups()) {
      rows_ += group.m;
      alphas_.push_back(group.alpha);
      scale_rows_ += operands.types().a_scale_layout == ScaleLayout::kLinear
                         ? group.m
                         : RoundUp(group.m, kScaleTileRows);
    }
    UploadOperands();
    Pack();
  }

  void UseHostM() {
    const DeviceMProblem& stack = operands_.stack();
    expected.assign(operands_.groups().begin(), operands_.groups().end());
    std::vector<sm90::TileGroup> groups;
    std::vector<sm90::PrepareGroup> places;
    int32_t row = 0;
    for (const GroupProblem& group : expected) {
      const auto block = std::ssize(groups) * sm90::PackedBlocks(group.n, group.k);
      groups.push_back(
          {.m = group.m,
           .n = group.n,
           .k = group.k,
           .token = row,
           .scale_row = row,
           .block = static_cast<uint32_t>(block),
           .c = static_cast<const std::byte*>(group.c) - static_cast<const std::byte*>(stack.c),
           .c_stride = group.c_stride});
      const int64_t scales = group.a_scales != nullptr ? group.a_scales - stack.a_scales : 0;
      places.push_back({.a = group.a - stack.a, .a_scales = scales, .row = row, .k = group.k});
      row += group.m;
    }
    const sm90::TileLists lists = sm90::CutTiles(instance, operands_.types(), groups, 5);
    tiles = lists.entries;
    gemm.tiles = gpu_.Upload(tiles);
    gemm.tiles_per_cta = lists.tiles_per_cta;
    grid = static_cast<uint32_t>(lists.ctas);
    prepare.groups = gpu_.Upload(places);
  }

  // `values` with the capacity of all groups together, or of each.
  void UseDeviceM(MSource source, int64_t capacity_rows, const std::vector<int32_t>& values) {
    DeviceMProblem stack = operands_.stack();
    stack.m_source = source;
    stack.capacity_rows = capacity_rows;
    stack.m_values = values.data();
    stack.alpha = alphas_.data();
    expected.resize(alphas_.size());
    cpu::ResolveDeviceM(stack, operands_.types(), expected, &expected_error);
    prepare.m_values = gpu_.Upload(values);
    prepare.capacity_rows = capacity_rows;
    prepare.k = stack.k;
    prepare.m_source = source;
    const std::vector<uint32_t> covers = sm90::CoverTable(instance, stack.k);
    const sm90::LiveShape shape = {.m_source = source,
                                   .capacity_rows = capacity_rows,
                                   .groups = stack.groups,
                                   .n = stack.n,
                                   .k = stack.k};
    grid = 3;
    gemm.tiles_per_cta =
        static_cast<int32_t>(sm90::MostTilesPerCta(instance, shape, static_cast<int32_t>(grid)));
    gemm.live = {.m_values = prepare.m_values,
                 .covers = gpu_.Upload(covers),
                 .lists = reinterpret_cast<sm90::TileEntry*>(
                     gpu_.Allocate(grid * gemm.tiles_per_cta * int64_t{sizeof(sm90::TileEntry)})),
                 .capacity_rows = capacity_rows,
                 .c_stride = stack.c_stride,
                 .group_count = stack.groups,
                 .n = stack.n,
                 .k = stack.k,
                 .m_source = source};
  }

  CUresult LaunchPrepare() {
    const auto ctas = sm90::PrepareCtas(prepare.rows, prepare.pitch);
    return gpu_.Launch(gpu_.Function(sm90::kPrepareEntry),
                       {.grid = static_cast<uint32_t>(ctas), .threads = sm90::kPrepareThreads},
                       prepare);
  }
  CUfunction GemmFunction() {
    const bool bf16 = gemm.types.a_type == ActivationType::kBf16;
    return gpu_.Function(absl::StrCat("tetrad_sm90_", bf16 ? "bf16_" : "fp16_", instance.name),
                         sm90::SharedBytes(instance));
  }
  LaunchShape GemmShape() const {
    return {.grid = grid,
            .threads = static_cast<uint32_t>(sm90::Threads(instance)),
            .shared_bytes = static_cast<uint32_t>(sm90::SharedBytes(instance)),
            .programmatic = prepares()};
  }
  CUresult LaunchGemm() { return gpu_.Launch(GemmFunction(), GemmShape(), gemm); }
  CUresult Run() {
    if (prepares()) {
      EXPECT_EQ(LaunchPrepare(), CUDA_SUCCESS);
    }
    EXPECT_EQ(LaunchGemm(), CUDA_SUCCESS);
    return gpu_.Synchronize();
  }
  bool prepares() const { return operands_.types().a_type != ActivationType::kFp16; }

  void SetMap(size_t which, const TensorMapSpec& spec) {
    const auto map = EncodeTensorMap(gpu_.cu, spec);
    ASSERT_TRUE(map.ok()) << map.status();
    gemm.tokens[which] = *map;
  }

  std::vector<std::byte> Output() { return gpu_.Download(gemm.c, c_bytes_); }
  void ClearOutput() {
    EXPECT_EQ(gpu_.cu.MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(gemm.c), operands_.stack().c,
                                      static_cast<size_t>(c_bytes_), gpu_.stream),
              CUDA_SUCCESS);
  }
  // What was computed, bit by bit against the reference.
  void ExpectCorrect(const std::string& what) {
    const std::vector<std::byte> c = Output();
    std::ranges::copy(c, static_cast<std::byte*>(operands_.stack().c));
    const Verdict verdict = Verify(operands_.types(), expected, {.check = Check::kBits});
    EXPECT_TRUE(verdict.pass) << what << "\n" << verdict.ToString();
    EXPECT_TRUE(operands_.OnlyOutputWritten(expected)) << what;
    const LaunchState state = gpu_.Download(gemm.state, 1)[0];
    EXPECT_EQ(state.error_word, expected_error) << what;
    EXPECT_NE(state.begun_ns, 0u) << what;
  }

  const sm90::Instance& instance;
  sm90::PrepareArguments prepare;
  sm90::GemmArguments gemm;
  std::vector<sm90::TileEntry> tiles;  // host M
  uint32_t grid = 0;
  std::vector<GroupProblem> expected;
  uint32_t expected_error = 0;

 private:
  void UploadOperands() {
    const ProblemTypes& types = operands_.types();
    const DeviceMProblem& stack = operands_.stack();
    const auto groups = static_cast<int32_t>(alphas_.size());
    gemm.state = gpu_.Upload(std::vector<LaunchState>(1));
    const uint8_t* const a = gpu_.Upload(stack.a, ActivationBytes(types.a_type, rows_, stack.k));
    prepare.a = a;
    if (types.a_type == ActivationType::kNvfp4) {
      prepare.a_scales =
          gpu_.Upload(stack.a_scales, ScalePlaneBytes(types.a_scale_layout, scale_rows_, stack.k));
    }
    prepare.tokens = reinterpret_cast<uint16_t*>(gpu_.Allocate(rows_ * stack.k * 2));
    prepare.state = gemm.state;
    prepare.rows = static_cast<int32_t>(rows_);
    prepare.pitch = stack.k;
    prepare.group_count = groups;
    prepare.a_type = types.a_type;
    prepare.a_scale_layout = types.a_scale_layout;
    const auto* const tokens = prepares() ? prepare.tokens : reinterpret_cast<const uint16_t*>(a);
    for (size_t i = 0; i < sm90::kMaxWidths && instance.widths[i] > 0; ++i) {
      SetMap(i, TokenMap(tokens, rows_, stack.k, instance.widths[i]));
    }
    const bool row_major = types.c_layout == OutputLayout::kRowMajor;
    c_bytes_ = (row_major ? rows_ : stack.n) * stack.c_stride * OutputElementBytes(types.c_type);
    gemm.c = gpu_.Upload(static_cast<const std::byte*>(stack.c), c_bytes_);
    gemm.alpha = gpu_.Upload(alphas_);
    if (stack.row_scale != nullptr) gemm.row_scale = gpu_.Upload(stack.row_scale, rows_);
    gemm.types = types;
    if (types.a_type == ActivationType::kNvfp4) gemm.types.a_type = ActivationType::kFp16;
    gemm.begins = !prepares();
  }

  void Pack() {
    const DeviceMProblem& stack = operands_.stack();
    const sm90::WeightsStack weights = {.groups = static_cast<int32_t>(alphas_.size()),
                                        .n = stack.n,
                                        .k = stack.k,
                                        .scale_layout = operands_.types().b_scale_layout};
    const int64_t scales = weights.groups * ScalePlaneBytes(weights.scale_layout, stack.n, stack.k);
    auto* const packed = reinterpret_cast<uint8_t*>(
        gpu_.Allocate(weights.groups * sm90::PackedBytes(stack.n, stack.k)));
    const sm90::PackArguments arguments = {
        gpu_.Upload(stack.b, weights.groups * CodeBytes(stack.n, stack.k)),
        gpu_.Upload(stack.b_scales, scales), packed, weights};
    EXPECT_EQ(gpu_.Launch(gpu_.Function(sm90::kPackEntry),
                          {.grid = 2, .threads = sm90::kPackThreads}, arguments),
              CUDA_SUCCESS);
    EXPECT_EQ(gpu_.Synchronize(), CUDA_SUCCESS) << gpu_.sim.last_fault();
    gemm.weights = packed;
  }

  Gpu& gpu_;
  Operands& operands_;
  std::vector<float> alphas_;
  int64_t rows_ = 0;
  int64_t scale_rows_ = 0;
  int64_t c_bytes_ = 0;
};

}  // namespace tetrad::cuda
