// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/gpu.h"

#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "bench/bars/cuda/open_device.h"

namespace tetrad::bars {
namespace {

constexpr int kCopySlots = 4;

absl::StatusOr<CUdevice> DeviceOf(const cuda::CudaDriver& driver, const std::string& uuid) {
  int count = 0;
  TETRAD_RETURN_IF_ERROR(cuda::CudaStatus(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid bytes;
    TETRAD_RETURN_IF_ERROR(cuda::CudaStatus(driver.DeviceGet(&device, i), "cuDeviceGet"));
    TETRAD_RETURN_IF_ERROR(
        cuda::CudaStatus(driver.DeviceGetUuid(&bytes, device), "cuDeviceGetUuid"));
    const std::string hex = absl::BytesToHexString({bytes.bytes, sizeof(bytes.bytes)});
    if (absl::StrReplaceAll(uuid, {{"GPU-", ""}, {"-", ""}}) == hex) return device;
  }
  return absl::NotFoundError(absl::StrCat("no device ", uuid));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(const Setting& setting) {
  std::unique_ptr<Gpu> gpu(new Gpu());
  TETRAD_RETURN_IF_ERROR(gpu->Start(setting));
  return gpu;
}

absl::Status Gpu::Start(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(device_, OpenCuda(setting, [] {}));
  TETRAD_ASSIGN_OR_RETURN(const CUdevice handle,
                          DeviceOf(device_->driver(), device_->limits().uuid));
  TETRAD_ASSIGN_OR_RETURN(context_, cuda::CudaContext::Create(device_->driver(), handle, [] {}));
  TETRAD_RETURN_IF_ERROR(context_->Enter());
  TETRAD_ASSIGN_OR_RETURN(transfers_, cuda::Transfers::Create(*context_, kCopySlots));
  TETRAD_ASSIGN_OR_RETURN(const int64_t granule, cuda::CudaMemory::Granule(*context_));
  TETRAD_ASSIGN_OR_RETURN(const int64_t free_bytes, context_->FreeBytes());
  memory_ = std::make_unique<cuda::CudaMemory>(*context_, *transfers_, free_bytes, granule);
  TETRAD_ASSIGN_OR_RETURN(const int major,
                          context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  TETRAD_ASSIGN_OR_RETURN(const int minor,
                          context_->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  TETRAD_ASSIGN_OR_RETURN(kernels_, cuda::KernelLibrary::Load(*context_, major * 10 + minor,
                                                              /*portable_only=*/true));
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(*context_, StreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, 0));
  for (CUevent& event : events_) {
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, EventCreate, &event, CU_EVENT_DEFAULT));
  }
  return absl::OkStatus();
}

Gpu::~Gpu() {
  if (context_ == nullptr || !context_->Enter().ok()) return;
  const cuda::CudaDriver& driver = context_->driver();
  if (stream_ != nullptr) context_->Synchronize(stream_).IgnoreError();
  for (const CUevent event : events_) {
    if (event != nullptr) context_->Release(driver.EventDestroy(event), "cuEventDestroy");
  }
  if (stream_ != nullptr) context_->Release(driver.StreamDestroy(stream_), "cuStreamDestroy");
}

absl::StatusOr<GpuBuffer> Gpu::Allocate(int64_t bytes) {
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation, memory_->Allocate(bytes));
  TETRAD_ASSIGN_OR_RETURN(const uint64_t address,
                          memory_->table().Pin({allocation.id, 0, bytes}, /*writable=*/false));
  memory_->table().Unpin(allocation.id, /*writable=*/false);
  return GpuBuffer(*memory_, allocation.id, address, bytes);
}

absl::StatusOr<GpuBuffer> Gpu::Place(std::span<const std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(GpuBuffer buffer, Allocate(static_cast<int64_t>(data.size())));
  TETRAD_RETURN_IF_ERROR(buffer.Write(data));
  return buffer;
}

absl::StatusOr<GpuBuffer> Gpu::Alias(const BlockRef& block) {
  TETRAD_ASSIGN_OR_RETURN(UniqueFd fd, device_->Export(block.allocation));
  TETRAD_ASSIGN_OR_RETURN(const int64_t granule, cuda::CudaMemory::Granule(*context_));
  TETRAD_ASSIGN_OR_RETURN(
      const Allocation allocation,
      memory_->Import(std::move(fd), IdentitySource().Next(),
                      RoundUp(block.offset + block.bytes, granule), /*writable=*/true));
  TETRAD_ASSIGN_OR_RETURN(
      const uint64_t address,
      memory_->table().Pin({allocation.id, block.offset, block.bytes}, /*writable=*/false));
  memory_->table().Unpin(allocation.id, /*writable=*/false);
  return GpuBuffer(*memory_, allocation.id, address, block.bytes);
}

absl::StatusOr<GpuGraph> Gpu::Capture(absl::FunctionRef<absl::Status(CUstream)> work) {
  const cuda::CudaDriver& driver = context_->driver();
  TETRAD_RETURN_IF_ERROR(context_->Enter());
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(*context_, StreamBeginCapture, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const absl::Status given = work(stream_);
  CUgraph graph = nullptr;
  const absl::Status ended = TETRAD_CUDA(*context_, StreamEndCapture, stream_, &graph);
  const absl::Cleanup destroy = [&] {
    if (graph != nullptr) context_->Release(driver.GraphDestroy(graph), "cuGraphDestroy");
  };
  TETRAD_RETURN_IF_ERROR(given);
  TETRAD_RETURN_IF_ERROR(ended);
  CUgraphExec exec = nullptr;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, GraphInstantiate, &exec, graph, 0));
  GpuGraph captured(*context_, exec);
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, GraphUpload, exec, stream_));
  TETRAD_RETURN_IF_ERROR(Synchronize());
  return captured;
}

absl::StatusOr<double> Gpu::Time(const GpuGraph& graph) {
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, EventRecord, events_[0], stream_));
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, GraphLaunch, graph.exec(), stream_));
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, EventRecord, events_[1], stream_));
  TETRAD_RETURN_IF_ERROR(context_->Synchronize(events_[1]));
  float ms = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, EventElapsedTime, &ms, events_[0], events_[1]));
  return 1e3 * static_cast<double>(ms);
}

absl::Status Gpu::Settle(const GpuGraph& graph) {
  constexpr double kSettleUs = 30'000;
  TETRAD_ASSIGN_OR_RETURN(const double us, Time(graph));
  for (double left = kSettleUs - us; left > 0; left -= us) {
    TETRAD_RETURN_IF_ERROR(Launch(graph));
  }
  return absl::OkStatus();
}

absl::Status Gpu::Launch(const GpuGraph& graph) {
  return TETRAD_CUDA(*context_, GraphLaunch, graph.exec(), stream_);
}

}  // namespace tetrad::bars
