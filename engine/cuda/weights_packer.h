// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WeightsPacker: brings weights in device memory into the form the Hopper kernel reads
// (kernels/sm90/packed_weights.h), in place, on a stream of its own.
//
// What it launches is bounded by what PackingBatches says: a copy of the scales, for every batch
// a copy of its codes, and in every batch a kernel for each run of groups of one size.
//
// Thread-safe: several can pack at a time, in memory and scratch of their own; their batches
// take turns.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "engine/cuda/kernel_library.h"
#include "engine/packing_batches.h"

namespace tetrad::cuda {

class WeightsPacker {
 public:
  static absl::StatusOr<std::unique_ptr<WeightsPacker>> Create(CudaContext& context,
                                                               const KernelLibrary& library,
                                                               int32_t multiprocessors);
  ~WeightsPacker();
  WeightsPacker(const WeightsPacker&) = delete;

  // Addresses of device memory; as WeightsToPack (engine/device.h) says. Waits until it is done,
  // or until nothing uses the memory any more.
  absl::Status Pack(const PackingBatches& batches, CUdeviceptr memory, int64_t scales,
                    CUdeviceptr scratch, int64_t scratch_bytes);

 private:
  absl::Status Enqueue(const PackingBatches& batches, CUdeviceptr memory, int64_t scales,
                       CUdeviceptr scratch, int64_t scratch_bytes);
  absl::Status Copy(CUdeviceptr to, CUdeviceptr from, int64_t bytes);
  // A launch for each run of groups of one size.
  absl::Status PackBatch(const PackingBatches& batches, const PackingBatch& batch,
                         CUdeviceptr codes, CUdeviceptr scales, CUdeviceptr packed);
  WeightsPacker(CudaContext& context, const KernelLibrary& library, int32_t multiprocessors)
      : context_(context), library_(library), multiprocessors_(multiprocessors) {}

  CudaContext& context_;
  const KernelLibrary& library_;
  const int32_t multiprocessors_;
  CUstream stream_ = nullptr;
};

}  // namespace tetrad::cuda
