// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/emulation/driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "kernels/cuda/emulation/cta.h"
#include "kernels/cuda/emulation/kernels.h"

namespace tetrad::cuda::emulation {
namespace {

constexpr size_t kPage = 4096;

int Attribute(CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 2;
    default:
      return 0;
  }
}

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult Launch(CUfunction function, unsigned grid, unsigned, unsigned, unsigned threads, unsigned,
                unsigned, unsigned shared_bytes, CUstream, void** arguments, void**) {
  const auto kernel = reinterpret_cast<Kernel>(function);
  for (uint32_t block = 0; block < grid; ++block) {
    Cta(block, grid, threads, shared_bytes).Run([&] { kernel(arguments); });
  }
  return CUDA_SUCCESS;
}

void AddMemory(CudaDriver& driver) {
  driver.MemGetAllocationGranularity = [](size_t* granule, const CUmemAllocationProp*,
                                          CUmemAllocationGranularity_flags) {
    *granule = kPage;
    return CUDA_SUCCESS;
  };
  driver.MemAddressReserve = [](CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                                unsigned long long) {
    // Ends in a page that nobody may touch.
    void* const memory = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return mprotect(Pointer(*address + bytes), kPage, PROT_NONE) == 0 ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_UNKNOWN;
  };
  driver.MemAddressFree = [](CUdeviceptr address, size_t bytes) {
    munmap(Pointer(address), bytes + kPage);
    return CUDA_SUCCESS;
  };
  driver.MemCreate = [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                        unsigned long long) {
    *handle = 1;
    return CUDA_SUCCESS;
  };
  driver.MemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  driver.MemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                     unsigned long long) { return CUDA_SUCCESS; };
  driver.MemUnmap = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  driver.MemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
  driver.MemHostAlloc = [](void** host, size_t bytes, unsigned) {
    *host = std::malloc(bytes);
    return CUDA_SUCCESS;
  };
  driver.MemFreeHost = [](void* host) {
    std::free(host);
    return CUDA_SUCCESS;
  };
  driver.MemHostGetDevicePointer = [](CUdeviceptr* device, void* host, unsigned) {
    *device = reinterpret_cast<CUdeviceptr>(host);
    return CUDA_SUCCESS;
  };
  driver.MemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    std::memcpy(Pointer(to), from, bytes);
    return CUDA_SUCCESS;
  };
  driver.MemcpyDtoHAsync = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    std::memcpy(to, Pointer(from), bytes);
    return CUDA_SUCCESS;
  };
  driver.MemsetD8Async = [](CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
    std::memset(Pointer(to), value, bytes);
    return CUDA_SUCCESS;
  };
}

void AddDevice(CudaDriver& driver) {
  driver.GetErrorName = [](CUresult, const char** name) {
    *name = "error of the emulated driver";
    return CUDA_SUCCESS;
  };
  driver.DeviceGetCount = [](int* devices) {
    *devices = 1;
    return CUDA_SUCCESS;
  };
  driver.DeviceGet = [](CUdevice* device, int) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  driver.DeviceGetName = [](char* name, int length, CUdevice) {
    std::snprintf(name, static_cast<size_t>(length), "emulation");
    return CUDA_SUCCESS;
  };
  driver.DeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    *value = Attribute(which);
    return CUDA_SUCCESS;
  };
  driver.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
  };
  driver.DevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
  driver.CtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver.StreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    *stream = nullptr;
    return CUDA_SUCCESS;
  };
  driver.StreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
  driver.StreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
}

void AddKernels(CudaDriver& driver) {
  driver.ModuleLoadData = [](CUmodule* module, const void*) {
    *module = reinterpret_cast<CUmodule>(1);
    return CUDA_SUCCESS;
  };
  driver.ModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  driver.ModuleGetFunction = [](CUfunction* function, CUmodule, const char* entry) {
    const Kernel kernel = FindKernel(entry);
    *function = reinterpret_cast<CUfunction>(kernel);
    return kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  driver.FuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  driver.OccupancyMaxActiveBlocksPerMultiprocessor = [](int* ctas, CUfunction, int, size_t) {
    *ctas = 2;
    return CUDA_SUCCESS;
  };
  driver.LaunchKernel = &Launch;
}

}  // namespace

CudaDriver EmulatedDriver() {
  CudaDriver driver;
  AddDevice(driver);
  AddMemory(driver);
  AddKernels(driver);
  return driver;
}

}  // namespace tetrad::cuda::emulation
