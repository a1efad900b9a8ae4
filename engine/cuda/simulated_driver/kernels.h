// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a simulated driver (tests only): entries known by name, computed
// on the CPU as the headers of kernels/cuda and kernels/sm90 describe them.
//
// Thread-safe as far as the memory that a launch names is. A launch that
// touches what it may not leaves an error and says why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cuda.h>

#include "engine/cuda/simulated_driver/address_space.h"
#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::cuda::simulated {

// What the kernels of a multiprocessor share.
inline constexpr int kMultiprocessorRegisters = 65536;

enum class Kernel : uint8_t {
  kPortableGemm,
  kHopperGemm,
  kPack,
  kUnpack,
  kPrepare,
  kSnapshot,
  kCompletion,
  kProofFill,
  kProofCompare,
  kReadRate,
  kMmaRate,
};

struct KernelFacts {
  Kernel kernel;
  const char* entry;
  std::array<size_t, 4> parameter_bytes;  // 0: no more
  int registers;
  // What a launch must have; 0: any number of threads.
  int threads = 0;
  int shared_bytes = 0;   // dynamic, at least
  bool computes = false;  // a GEMM
  // May start before the kernel before it has ended: waits for that itself.
  bool waits_for_prior_grid = false;
  int only_capability = 0;  // 0: any
  // Of the Hopper GEMM.
  const sm90::Instance* instance = nullptr;
  ActivationType tokens = ActivationType::kFp16;
};

// Null if the name is unknown.
const KernelFacts* FindKernel(std::string_view entry);

struct KernelLaunch {
  const KernelFacts* facts = nullptr;
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;
  bool programmatic = false;  // may start before the kernel before it has ended
  std::array<std::vector<std::byte>, 4> parameters;  // copies

  template <typename T>
  T Parameter(size_t index) const;
  // Device addresses among the parameters: what the launch may use.
  std::vector<CUdeviceptr> Addresses() const;
};

// CUDA_SUCCESS, or what breaks the context. `spoil`: a computing kernel leaves a
// wrong first byte of its output.
CUresult RunKernel(const KernelLaunch& launch, const AddressSpace& space, bool spoil,
                   std::string* why);

}  // namespace tetrad::cuda::simulated
