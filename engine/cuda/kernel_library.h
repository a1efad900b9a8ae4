// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// KernelLibrary: the device code of this build, loaded on one device.
//
// Loading checks what the rest relies on: that a kernel's dynamic shared memory
// is granted, that it uses no local memory (which the driver would allocate at
// the first launch), and how many CTAs of it a multiprocessor holds.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "kernels/cuda/images.h"
#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::cuda {

struct Kernel {
  CUfunction function = nullptr;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;  // dynamic
  int32_t ctas_per_multiprocessor = 0;
};

class KernelLibrary {
 public:
  static constexpr int kActivationTypes = 3;

  // FAILED_PRECONDITION if this build has no code for the capability.
  static absl::StatusOr<std::unique_ptr<KernelLibrary>> Load(CudaContext& context, int capability,
                                                             bool portable_only);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;

  const Kernel& gemm(ActivationType type) const { return gemm_[static_cast<size_t>(type)]; }
  // Whether this device has the Hopper kernels; the five below are of no use without.
  bool has_hopper() const { return pack_.function != nullptr; }
  const Kernel& pack() const { return pack_; }
  const Kernel& prepare() const { return prepare_; }
  const Kernel& snapshot() const { return snapshot_; }
  // NVFP4 activations are expanded to FP16.
  const Kernel& hopper_gemm(ActivationType type, const sm90::Instance& instance) const {
    return hopper_gemm_[type == ActivationType::kBf16 ? 1 : 0]
                       [static_cast<size_t>(&instance - sm90::kInstances)];
  }
  const Kernel& completion() const { return completion_; }
  const Kernel& proof_fill() const { return proof_fill_; }
  const Kernel& proof_compare() const { return proof_compare_; }
  const Kernel& read_rate() const { return read_rate_; }
  const Kernel& mma_rate() const { return mma_rate_; }

 private:
  explicit KernelLibrary(CudaContext& context) : context_(context) {}
  absl::Status LoadHopper(int capability);
  absl::StatusOr<CUmodule> LoadUnit(std::span<const KernelImage> images, std::string_view unit,
                                    int capability);
  absl::Status Find(CUmodule module, const char* entry, int32_t threads, int32_t shared_bytes,
                    Kernel& kernel);

  CudaContext& context_;
  std::vector<CUmodule> modules_;
  std::array<Kernel, kActivationTypes> gemm_;
  std::array<std::array<Kernel, std::size(sm90::kInstances)>, 2> hopper_gemm_;
  Kernel pack_, prepare_, snapshot_;
  Kernel completion_, proof_fill_, proof_compare_, read_rate_, mma_rate_;
};

// Launches with the arguments' addresses, as the driver takes them.
template <typename... Arguments>
absl::Status LaunchKernel(CudaContext& context, const Kernel& kernel, uint32_t grid,
                          CUstream stream, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  return TETRAD_CUDA(context, LaunchKernel, kernel.function, grid, 1, 1, kernel.threads, 1, 1,
                     kernel.shared_bytes, stream, addresses, nullptr);
}

}  // namespace tetrad::cuda
