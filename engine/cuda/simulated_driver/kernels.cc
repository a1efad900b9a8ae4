// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/cuda/simulated_driver/portable_gemm.h"
#include "engine/cuda/simulated_driver/sm90_gemm.h"
#include "engine/cuda/simulated_driver/sm90_operands.h"
#include "engine/cuda/simulated_driver/tensor_maps.h"
#include "engine/cuda/simulated_driver/view.h"
#include "engine/support/status_macros.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/proof.h"
#include "kernels/cuda/rates.h"
#include "kernels/float16.h"
#include "kernels/random.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/pack.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::cuda::simulated {
namespace {

// As many threads as kernels have leave no more to each.
constexpr int kManyRegisters = 128;
constexpr int kFewRegisters = 32;
constexpr int kRegisterGranule = 8;

constexpr KernelFacts Portable(ActivationType type) {
  return {.kernel = Kernel::kPortableGemm,
          .entry = PortableEntry(type),
          .parameter_bytes = {sizeof(LaunchArguments)},
          .registers = kManyRegisters,
          .threads = kPortableThreads,
          .shared_bytes = kPortableSharedBytes,
          .computes = true};
}

constexpr const sm90::Instance* InstanceOf(std::string_view name) {
  for (const sm90::Instance& instance : sm90::kInstances) {
    if (name == instance.name) return &instance;
  }
  return nullptr;
}

constexpr KernelFacts Hopper(const char* entry, std::string_view name, ActivationType tokens) {
  const sm90::Instance* const instance = InstanceOf(name);
  const int threads = sm90::Threads(*instance);
  return {.kernel = Kernel::kHopperGemm,
          .entry = entry,
          .parameter_bytes = {sizeof(sm90::GemmArguments)},
          .registers = kMultiprocessorRegisters / threads / kRegisterGranule * kRegisterGranule,
          .threads = threads,
          .shared_bytes = sm90::SharedBytes(*instance),
          .computes = true,
          .waits_for_prior_grid = true,
          .only_capability = 90,
          .instance = instance,
          .tokens = tokens};
}

#define TETRAD_HOPPER_FP16(name, ...) \
  Hopper("tetrad_sm90_fp16_" #name, #name, ActivationType::kFp16),
#define TETRAD_HOPPER_BF16(name, ...) \
  Hopper("tetrad_sm90_bf16_" #name, #name, ActivationType::kBf16),
constexpr KernelFacts kKernels[] = {
    Portable(ActivationType::kNvfp4),
    Portable(ActivationType::kFp16),
    Portable(ActivationType::kBf16),
    TETRAD_SM90_INSTANCES(TETRAD_HOPPER_FP16)  // ends with a comma
    TETRAD_SM90_INSTANCES(TETRAD_HOPPER_BF16)  // too
    {.kernel = Kernel::kPack,
     .entry = sm90::kPackEntry,
     .parameter_bytes = {sizeof(sm90::PackArguments)},
     .registers = kFewRegisters,
     .threads = sm90::kPackThreads},
    {.kernel = Kernel::kUnpack,
     .entry = sm90::kUnpackEntry,
     .parameter_bytes = {sizeof(sm90::UnpackArguments)},
     .registers = kFewRegisters,
     .threads = sm90::kPackThreads},
    {.kernel = Kernel::kPrepare,
     .entry = sm90::kPrepareEntry,
     .parameter_bytes = {sizeof(sm90::PrepareArguments)},
     .registers = kFewRegisters,
     .threads = sm90::kPrepareThreads,
     .waits_for_prior_grid = true},
    {.kernel = Kernel::kSnapshot,
     .entry = sm90::kSnapshotEntry,
     .parameter_bytes = {sizeof(sm90::SnapshotArguments)},
     .registers = kFewRegisters,
     .threads = sm90::kPrepareThreads,
     .waits_for_prior_grid = true},
    {Kernel::kCompletion, kCompletionEntry, {sizeof(CompletionArguments)}, kFewRegisters},
    {Kernel::kProofFill, kProofFillEntry, {8, 8, 4, 4}, kFewRegisters},
    {Kernel::kProofCompare, kProofCompareEntry, {8, 8, 8, 8}, kFewRegisters},
    {Kernel::kReadRate, kReadRateEntry, {8, 8, 8}, kFewRegisters},
    {Kernel::kMmaRate, kMmaRateEntry, {8, 4}, kManyRegisters},
};
#undef TETRAD_HOPPER_FP16
#undef TETRAD_HOPPER_BF16

void Complete(const CompletionArguments& arguments, View& view) {
  LaunchState* const state = view.Write(arguments.state, 1);
  if (arguments.depth == 0) return view.Refuse("completion records of depth 0");
  if (state == nullptr) return;
  ++state->launches;
  CompletionRecord* const record =
      view.Write(arguments.records + (state->launches - 1) % arguments.depth, 1);
  if (record == nullptr) return;
  record->error_word = state->error_word;
  record->device_ns = std::max<uint64_t>(1, GlobalTimer() - state->begun_ns);
  state->error_word = 0;
  std::atomic_ref(record->sequence).store(state->launches, std::memory_order_release);
}

void Snapshot(const sm90::SnapshotArguments& arguments, View& view) {
  LaunchState* const state = view.Write(arguments.state, 1);
  const int32_t* const from = view.Read(arguments.from, arguments.count);
  int32_t* const to = view.Write(arguments.to, arguments.count);
  if (!view.ok()) return;
  state->begun_ns = GlobalTimer();
  LoadRaced(to, from, arguments.count);
}

uint16_t Moderate(ProofFill fill, uint64_t bits) {
  const float value = static_cast<float>(static_cast<int64_t>(bits % 4096) - 2048) * 0x1p-8f;
  return fill == ProofFill::kFp16 ? EncodeFp16(value) : EncodeBf16(value);
}

void Fill(uint8_t* out, int64_t bytes, uint32_t seed, ProofFill fill) {
  for (int64_t at = 0; at < bytes;) {
    const uint64_t bits = Random(uint64_t{seed} << 32 ^ static_cast<uint64_t>(at)).Next();
    uint8_t value[4];
    int64_t size = 1;
    if (fill == ProofFill::kCodes) {
      value[0] = static_cast<uint8_t>(bits);
    } else if (fill == ProofFill::kScales) {
      value[0] = static_cast<uint8_t>(0x30 + bits % 16);
    } else if (fill == ProofFill::kFp32) {
      const float number = 0.5f + static_cast<float>(bits % 4096) * 0x1p-12f;
      std::memcpy(value, &number, size = 4);
    } else {
      const uint16_t number = Moderate(fill, bits);
      std::memcpy(value, &number, size = 2);
    }
    for (int64_t i = 0; i < size && at < bytes; ++i) out[at++] = value[i];
  }
}

void Compare(const uint8_t* x, const uint8_t* y, int64_t bytes, uint64_t* different) {
  uint64_t count = 0;
  for (int64_t i = 0; i < bytes; ++i) count += x[i] != y[i] ? 1 : 0;
  std::atomic_ref(*different).fetch_add(count, std::memory_order_relaxed);
}

void ReadAll(const uint8_t* from, int64_t bytes, uint32_t* sink) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 16) sum += from[i];
  if (bytes < 0) *sink = sum;
}

}  // namespace

const KernelFacts* FindKernel(std::string_view entry) {
  for (const KernelFacts& facts : kKernels) {
    if (entry == facts.entry) return &facts;
  }
  return nullptr;
}

template <typename T>
T KernelLaunch::Parameter(size_t index) const {
  T value;
  TETRAD_CHECK(parameters[index].size() == sizeof(T));
  std::memcpy(&value, parameters[index].data(), sizeof(T));
  return value;
}

std::vector<CUdeviceptr> KernelLaunch::Addresses() const {
  const auto all = [](auto... pointers) { return std::vector<CUdeviceptr>{Address(pointers)...}; };
  switch (facts->kernel) {
    case Kernel::kPortableGemm: {
      const auto a = Parameter<LaunchArguments>(0);
      return all(a.a, a.a_scales, a.b, a.b_scales, a.c, a.alpha, a.row_scale, a.m_values, a.groups,
                 a.tiles, a.cta_begin, a.state);
    }
    case Kernel::kHopperGemm: {
      const auto a = Parameter<sm90::GemmArguments>(0);
      std::vector<CUdeviceptr> used = all(a.weights, a.c, a.alpha, a.row_scale, a.tiles, a.state,
                                          a.live.m_values, a.live.covers, a.live.lists);
      for (const CUtensorMap& map : a.tokens) {
        if (const auto spec = DecodeMap(map); spec.has_value()) used.push_back(spec->address);
      }
      return used;
    }
    case Kernel::kPack: {
      const auto a = Parameter<sm90::PackArguments>(0);
      return all(a.codes, a.scales, a.packed);
    }
    case Kernel::kUnpack: {
      const auto a = Parameter<sm90::UnpackArguments>(0);
      return all(a.packed, a.codes, a.scales);
    }
    case Kernel::kPrepare: {
      const auto a = Parameter<sm90::PrepareArguments>(0);
      return all(a.a, a.a_scales, a.tokens, a.groups, a.m_values, a.state);
    }
    case Kernel::kSnapshot: {
      const auto a = Parameter<sm90::SnapshotArguments>(0);
      return all(a.from, a.to, a.state);
    }
    case Kernel::kCompletion: {
      const auto a = Parameter<CompletionArguments>(0);
      return all(a.state, a.records);
    }
    case Kernel::kProofCompare:
      return {Parameter<CUdeviceptr>(0), Parameter<CUdeviceptr>(1), Parameter<CUdeviceptr>(3)};
    case Kernel::kReadRate:
      return {Parameter<CUdeviceptr>(0), Parameter<CUdeviceptr>(2)};
    case Kernel::kProofFill:
    case Kernel::kMmaRate:
      return {Parameter<CUdeviceptr>(0)};
  }
  return {};
}

CUresult RunKernel(const KernelLaunch& launch, const AddressSpace& space, bool spoil,
                   std::string* why) {
  View view(space, why);
  const int64_t ctas = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  std::byte* output = nullptr;
  if (launch.facts->kernel == Kernel::kPortableGemm) {
    output = RunPortableGemm(launch.Parameter<LaunchArguments>(0), ctas, view);
  } else if (launch.facts->kernel == Kernel::kHopperGemm) {
    output = RunHopperGemm(*launch.facts->instance, launch.facts->tokens,
                           launch.Parameter<sm90::GemmArguments>(0), ctas, view);
  } else if (launch.facts->kernel == Kernel::kPack) {
    RunPack(launch.Parameter<sm90::PackArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kUnpack) {
    RunUnpack(launch.Parameter<sm90::UnpackArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kPrepare) {
    RunPrepare(launch.Parameter<sm90::PrepareArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kSnapshot) {
    Snapshot(launch.Parameter<sm90::SnapshotArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kCompletion) {
    Complete(launch.Parameter<CompletionArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kProofFill) {
    const auto bytes = launch.Parameter<int64_t>(1);
    uint8_t* const out = view.Write(launch.Parameter<uint8_t*>(0), bytes);
    if (view.ok()) Fill(out, bytes, launch.Parameter<uint32_t>(2), launch.Parameter<ProofFill>(3));
  } else if (launch.facts->kernel == Kernel::kProofCompare) {
    const auto bytes = launch.Parameter<int64_t>(2);
    const uint8_t* const x = view.Read(launch.Parameter<const uint8_t*>(0), bytes);
    const uint8_t* const y = view.Read(launch.Parameter<const uint8_t*>(1), bytes);
    uint64_t* const different = view.Write(launch.Parameter<uint64_t*>(3), 1);
    if (view.ok()) Compare(x, y, bytes, different);
  } else if (launch.facts->kernel == Kernel::kReadRate) {
    const auto bytes = launch.Parameter<int64_t>(1);
    const uint8_t* const from = view.Read(launch.Parameter<const uint8_t*>(0), bytes);
    uint32_t* const sink = view.Write(launch.Parameter<uint32_t*>(2), 1);
    if (view.ok()) ReadAll(from, bytes, sink);
  } else {
    const auto repeats = launch.Parameter<int32_t>(1);
    uint32_t* const sink = view.Write(launch.Parameter<uint32_t*>(0), 1);
    if (view.ok() && repeats == 0) *sink = kMmaFlopsPerRepeat;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(repeats, 1 << 20)));
  }
  if (spoil && output != nullptr) *output ^= std::byte{1};
  return view.ok() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace tetrad::cuda::simulated
