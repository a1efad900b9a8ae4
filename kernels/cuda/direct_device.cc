// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/direct_device.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/nvfp4.h"

namespace tetrad::cuda {

void DirectDevice::Require(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver_.GetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", what, name != nullptr ? name : "unknown error");
  std::abort();
}

absl::StatusOr<std::unique_ptr<DirectDevice>> DirectDevice::Open(const CudaDriver& driver,
                                                                 size_t arena_bytes) {
  int devices = 0;
  if (driver.DeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) {
    return absl::FailedPreconditionError("the CUDA driver has no device");
  }
  std::unique_ptr<DirectDevice> result(new DirectDevice);
  DirectDevice& d = *result;
  d.driver_ = driver;
  const CudaDriver& cuda = d.driver_;
  d.Require(cuda.DeviceGet(&d.device_, 0), "cuDeviceGet");
  char name[128] = {};
  d.Require(cuda.DeviceGetName(name, sizeof(name) - 1, d.device_), "cuDeviceGetName");
  d.name_ = name;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    d.Require(cuda.DeviceGetAttribute(&value, which, d.device_), "cuDeviceGetAttribute");
    return value;
  };
  d.capability_ = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  d.multiprocessors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  d.Require(cuda.DevicePrimaryCtxRetain(&d.context_, d.device_), "cuDevicePrimaryCtxRetain");
  d.Require(cuda.CtxSetCurrent(d.context_), "cuCtxSetCurrent");
  d.Require(cuda.StreamCreateWithPriority(&d.stream_, CU_STREAM_NON_BLOCKING, 0),
            "cuStreamCreateWithPriority");
  d.CreateArena(d.device_, arena_bytes);
  return result;
}

void DirectDevice::CreateArena(CUdevice device, size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  size_t granule = 0;
  Require(driver_.MemGetAllocationGranularity(&granule, &properties,
                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
  arena_bytes_ =
      static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes), static_cast<int64_t>(granule)));
  Require(driver_.MemAddressReserve(&arena_, arena_bytes_, 0, 0, 0), "cuMemAddressReserve");
  Require(driver_.MemCreate(&handle_, arena_bytes_, &properties, 0), "cuMemCreate");
  Require(driver_.MemMap(arena_, arena_bytes_, 0, handle_, 0), "cuMemMap");
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Require(driver_.MemSetAccess(arena_, arena_bytes_, &access, 1), "cuMemSetAccess");
}

DirectDevice::~DirectDevice() {
  if (context_ == nullptr) return;
  Synchronize();
  for (void* host : host_) driver_.MemFreeHost(host);
  for (const auto& [image, module] : modules_) driver_.ModuleUnload(module);
  if (handle_ != 0) {
    driver_.MemUnmap(arena_, arena_bytes_);
    driver_.MemRelease(handle_);
    driver_.MemAddressFree(arena_, arena_bytes_);
  }
  driver_.StreamDestroy(stream_);
  driver_.DevicePrimaryCtxRelease(device_);
}

CUfunction DirectDevice::Function(std::string_view unit, const char* entry, int shared_bytes) {
  const KernelImage* image = ChooseImage(KernelImages(), unit, capability_);
  Require(image != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU, entry);
  return Function(*image, entry, shared_bytes);
}

CUfunction DirectDevice::Function(const KernelImage& image, const char* entry, int shared_bytes) {
  CUmodule& module = modules_[&image];
  if (module == nullptr) {
    Require(driver_.ModuleLoadData(&module, image.bytes.data()), "cuModuleLoadData");
  }
  CUfunction function = nullptr;
  Require(driver_.ModuleGetFunction(&function, module, entry), entry);
  Require(driver_.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   shared_bytes),
          "cuFuncSetAttribute");
  return function;
}

int DirectDevice::Occupancy(CUfunction function, int threads, int shared_bytes) const {
  int ctas = 0;
  Require(driver_.OccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, threads,
                                                            static_cast<size_t>(shared_bytes)),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return ctas;
}

CUdeviceptr DirectDevice::Allocate(size_t bytes) {
  const CUdeviceptr result = arena_ + used_;
  used_ += static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes), 256));
  Require(used_ <= arena_bytes_ ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "arena");
  return result;
}

void* DirectDevice::AllocateHost(size_t bytes, CUdeviceptr* device) {
  void* host = nullptr;
  Require(driver_.MemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  host_.push_back(host);
  Require(driver_.MemHostGetDevicePointer(device, host, 0), "cuMemHostGetDevicePointer");
  return host;
}

void DirectDevice::Upload(CUdeviceptr to, std::span<const std::byte> from) {
  if (from.empty()) return;
  Require(driver_.MemcpyHtoDAsync(to, from.data(), from.size(), stream_), "cuMemcpyHtoDAsync");
  Synchronize();  // `from` may be pageable and short-lived
}

void DirectDevice::Download(std::span<std::byte> to, CUdeviceptr from) {
  if (to.empty()) return;
  Require(driver_.MemcpyDtoHAsync(to.data(), from, to.size(), stream_), "cuMemcpyDtoHAsync");
  Synchronize();
}

void DirectDevice::Fill(CUdeviceptr to, uint8_t value, size_t bytes) {
  if (bytes == 0) return;
  Require(driver_.MemsetD8Async(to, value, bytes, stream_), "cuMemsetD8Async");
}

void DirectDevice::LaunchRaw(CUfunction function, int grid, int threads, int shared_bytes,
                             void** arguments) {
  Require(driver_.LaunchKernel(function, static_cast<unsigned>(grid), 1, 1,
                               static_cast<unsigned>(threads), 1, 1,
                               static_cast<unsigned>(shared_bytes), stream_, arguments, nullptr),
          "cuLaunchKernel");
}

void DirectDevice::Synchronize() { Require(driver_.StreamSynchronize(stream_), "stream"); }

}  // namespace tetrad::cuda
