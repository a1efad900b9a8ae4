// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Transfers: synchronous copies between host memory and the device, as fast as
// the bus while many threads copy.
//
// The device takes bytes from page-locked memory. Each transfer has a slot with
// two halves of it: one is filled while the other is copied. The driver would
// also take pageable memory, but may then return before the bytes have arrived.
//
// Large copies to the device leave some slots to others, so that a request does
// not wait for weights that are being loaded, whose source may be a slow disk.
//
// Thread-safe; when all slots are in use, the next transfer waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "engine/device.h"

namespace tetrad::cuda {

class Transfers {
 public:
  static constexpr int64_t kHalfBytes = 4 << 20;

  // Takes all of the page-locked memory now, so that no transfer lacks it later.
  static absl::StatusOr<std::unique_ptr<Transfers>> Create(CudaContext& context, int slots);
  ~Transfers();

  // `source` writes the bytes, in order, a piece at a time.
  absl::Status ToDevice(CUdeviceptr to, int64_t bytes, FillSource source);
  absl::Status FromDevice(CUdeviceptr from, std::span<std::byte> out);
  absl::Status Clear(CUdeviceptr to, int64_t bytes);

 private:
  struct Half {
    CUstream stream = nullptr;
    std::byte* memory = nullptr;
  };
  using Slot = std::array<Half, 2>;
  class Lease;

  Transfers(CudaContext& context, int slots);
  absl::Status Make(Slot& slot);
  void Destroy(Slot& slot);
  // Waits for what both halves were told to do.
  absl::Status Finish(Slot& slot);

  CudaContext& context_;
  std::vector<Slot> slots_;
  const size_t kept_;  // slots that large copies to the device leave to others
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Slot*> idle_;  // guarded by mutex_
};

}  // namespace tetrad::cuda
