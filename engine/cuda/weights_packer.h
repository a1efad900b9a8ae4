// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WeightsPacker: brings weights in device memory into the form the Hopper kernel reads
// (kernels/sm90/packed_weights.h), on a stream of its own.
//
// Thread-safe: several can pack at a time, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "engine/cuda/kernel_library.h"
#include "engine/signature.h"

namespace tetrad::cuda {

class WeightsPacker {
 public:
  static absl::StatusOr<std::unique_ptr<WeightsPacker>> Create(CudaContext& context,
                                                               const KernelLibrary& library,
                                                               int32_t multiprocessors);
  ~WeightsPacker();
  WeightsPacker(const WeightsPacker&) = delete;

  // Device addresses of the groups concatenated. Waits until it is done.
  absl::Status Pack(std::span<const GroupDims> groups, ScaleLayout scale_layout,
                    const uint8_t* codes, const uint8_t* scales, uint8_t* packed);

 private:
  WeightsPacker(CudaContext& context, const KernelLibrary& library, int32_t multiprocessors)
      : context_(context), library_(library), multiprocessors_(multiprocessors) {}

  CudaContext& context_;
  const KernelLibrary& library_;
  const int32_t multiprocessors_;
  CUstream stream_ = nullptr;
};

}  // namespace tetrad::cuda
