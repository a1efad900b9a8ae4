// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gpu: one GPU to measure on: the engine's device, and beside it, in the same
// context, what measuring needs and the engine does not show: memory with its
// address, graphs of any captured work, their times.
//
// Everything made of a Gpu must go before it. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "bench/bars/figure.h"
#include "engine/cuda/context.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/cuda_memory.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/transfers.h"

namespace tetrad::bars {

// Device memory at a fixed address; freed when it goes.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  GpuBuffer(cuda::CudaMemory& memory, AllocationId id, CUdeviceptr address, int64_t bytes)
      : memory_(&memory), id_(id), address_(address), bytes_(bytes) {}
  GpuBuffer(GpuBuffer&& other) noexcept { *this = std::move(other); }
  GpuBuffer& operator=(GpuBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(id_, other.id_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GpuBuffer() {
    if (memory_ != nullptr) memory_->Free(id_).IgnoreError();
  }

  CUdeviceptr address() const { return address_; }
  int64_t bytes() const { return bytes_; }
  absl::Status Write(std::span<const std::byte> data) { return memory_->Write(id_, 0, data); }
  absl::Status Read(std::span<std::byte> data) const { return memory_->Read(id_, 0, data); }

 private:
  cuda::CudaMemory* memory_ = nullptr;
  AllocationId id_ = AllocationId::kNone;
  CUdeviceptr address_ = 0;
  int64_t bytes_ = 0;
};

// Work that was captured once, instantiated and uploaded.
class GpuGraph {
 public:
  GpuGraph() = default;
  GpuGraph(cuda::CudaContext& context, CUgraphExec exec) : context_(&context), exec_(exec) {}
  GpuGraph(GpuGraph&& other) noexcept { *this = std::move(other); }
  GpuGraph& operator=(GpuGraph&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~GpuGraph() {
    if (exec_ != nullptr) {
      context_->Release(context_->driver().GraphExecDestroy(exec_), "cuGraphExecDestroy");
    }
  }
  CUgraphExec exec() const { return exec_; }

 private:
  cuda::CudaContext* context_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

class Gpu {
 public:
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(const Setting& setting);
  ~Gpu();
  Gpu(const Gpu&) = delete;

  cuda::CudaDevice& device() { return *device_; }
  cuda::CudaContext& context() { return *context_; }
  const cuda::KernelLibrary& kernels() const { return *kernels_; }
  CUstream stream() const { return stream_; }

  absl::StatusOr<GpuBuffer> Allocate(int64_t bytes);
  absl::StatusOr<GpuBuffer> Place(std::span<const std::byte> data);
  // Another mapping of an allocation of the engine's device, to read by kernels that
  // are launched after what wrote it has ended.
  absl::StatusOr<GpuBuffer> Alias(const BlockRef& block);
  // What `work` gives to the stream, captured.
  absl::StatusOr<GpuGraph> Capture(absl::FunctionRef<absl::Status(CUstream)> work);
  // Microseconds from before to after one replay, by events of the device.
  absl::StatusOr<double> Time(const GpuGraph& graph);
  // Replays for so long that the clock is the one that this work leaves the device, not the one
  // of what ran before: it follows the power drawn within milliseconds.
  absl::Status Settle(const GpuGraph& graph);
  // Replays without waiting.
  absl::Status Launch(const GpuGraph& graph);
  absl::Status Synchronize() { return context_->Synchronize(stream_); }

 private:
  Gpu() = default;
  absl::Status Start(const Setting& setting);

  std::unique_ptr<cuda::CudaDevice> device_;
  std::unique_ptr<cuda::CudaContext> context_;
  std::unique_ptr<cuda::Transfers> transfers_;
  std::unique_ptr<cuda::CudaMemory> memory_;
  std::unique_ptr<cuda::KernelLibrary> kernels_;
  CUstream stream_ = nullptr;
  CUevent events_[2] = {};
};

}  // namespace tetrad::bars
