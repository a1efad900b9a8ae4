// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// GemmLaunch: the kernels that compute one grouped GEMM, with their arguments, as a value. On
// Hopper a kernel that prepares activations may go before the GEMM, and before that one that copies
// live counts; each begins behind a programmatic edge: a GEMM fetches weights while
// activations are still prepared.
//
// What a graph of it looks like is its kind; which function, grid and arguments its nodes have
// can change while it is idle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "absl/status/status.h"

#include "engine/cuda/context.h"
#include "engine/cuda/kernel_library.h"
#include "kernels/cuda/launch.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::cuda {

enum class GraphKind : uint8_t {
  kPortableNvfp4 = 0,  // in the order of ActivationType
  kPortableFp16 = 1,
  kPortableBf16 = 2,
  kHopper = 3,
  kHopperPrepared = 4,
  kHopperPreparedLive = 5,  // device-side M
};
inline constexpr size_t kGraphKinds = 6;
inline constexpr size_t kMostGemmKernels = 3;

struct KernelCall {
  const Kernel* kernel = nullptr;
  uint32_t grid = 1;
  std::variant<LaunchArguments, sm90::SnapshotArguments, sm90::PrepareArguments,
               sm90::GemmArguments>
      arguments;

  void* address() {
    return std::visit([](auto& a) -> void* { return &a; }, arguments);
  }
};

struct GemmLaunch {
  GraphKind kind = GraphKind::kPortableNvfp4;
  std::array<KernelCall, kMostGemmKernels> calls;
  size_t count = 0;  // of calls; each but the first behind a programmatic edge

  void Add(const KernelCall& call) { calls[count++] = call; }
  std::span<KernelCall> kernels() { return {calls.data(), count}; }
  void SetState(LaunchState* state) {
    for (KernelCall& call : kernels()) {
      std::visit([state](auto& a) { a.state = state; }, call.arguments);
    }
  }
};

// Gives the kernels to a stream, which may be capturing. `overlaps`: the first may start while the
// kernel before it in the stream still runs, as far as it waits for that itself.
absl::Status LaunchOn(CudaContext& context, CUstream stream, GemmLaunch& launch,
                      bool overlaps = false);

}  // namespace tetrad::cuda
