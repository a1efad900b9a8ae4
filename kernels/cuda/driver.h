// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CudaDriver: the entry points of the CUDA driver, resolved at run time.
//
// Nothing links the driver's library, so one binary runs with and without it.
// Every entry point is found under the exact symbol whose prototype the headers
// gave at build time (e.g. cuMemAlloc_v2), never under a newer or older form of
// it. A plain table of function pointers: a test may replace any of them, and
// the program calls the driver through nothing else.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"

namespace tetrad::cuda {

// X(member, symbol)
#define TETRAD_CUDA_ENTRY_POINTS(X)                                                         \
  X(Init, cuInit)                                                                           \
  X(DriverGetVersion, cuDriverGetVersion)                                                   \
  X(GetErrorName, cuGetErrorName)                                                           \
  X(GetErrorString, cuGetErrorString)                                                       \
  X(DeviceGetCount, cuDeviceGetCount)                                                       \
  X(DeviceGet, cuDeviceGet)                                                                 \
  X(DeviceGetName, cuDeviceGetName)                                                         \
  X(DeviceGetUuid, cuDeviceGetUuid)                                                         \
  X(DeviceGetAttribute, cuDeviceGetAttribute)                                               \
  X(DeviceTotalMem, cuDeviceTotalMem)                                                       \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                       \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease)                                     \
  X(CtxSetCurrent, cuCtxSetCurrent)                                                         \
  X(CtxGetCurrent, cuCtxGetCurrent)                                                         \
  X(CtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange)                                 \
  X(CtxSynchronize, cuCtxSynchronize)                                                       \
  X(MemGetInfo, cuMemGetInfo)                                                               \
  X(MemGetAllocationGranularity, cuMemGetAllocationGranularity)                             \
  X(MemAddressReserve, cuMemAddressReserve)                                                 \
  X(MemAddressFree, cuMemAddressFree)                                                       \
  X(MemCreate, cuMemCreate)                                                                 \
  X(MemRelease, cuMemRelease)                                                               \
  X(MemMap, cuMemMap)                                                                       \
  X(MemUnmap, cuMemUnmap)                                                                   \
  X(MemSetAccess, cuMemSetAccess)                                                           \
  X(MemExportToShareableHandle, cuMemExportToShareableHandle)                               \
  X(MemImportFromShareableHandle, cuMemImportFromShareableHandle)                           \
  X(MemHostAlloc, cuMemHostAlloc)                                                           \
  X(MemFreeHost, cuMemFreeHost)                                                             \
  X(MemHostGetDevicePointer, cuMemHostGetDevicePointer)                                     \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync)                                                     \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync)                                                     \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync)                                                     \
  X(MemsetD8Async, cuMemsetD8Async)                                                         \
  X(StreamCreateWithPriority, cuStreamCreateWithPriority)                                   \
  X(StreamDestroy, cuStreamDestroy)                                                         \
  X(StreamSynchronize, cuStreamSynchronize)                                                 \
  X(StreamQuery, cuStreamQuery)                                                             \
  X(StreamBeginCapture, cuStreamBeginCapture)                                               \
  X(StreamEndCapture, cuStreamEndCapture)                                                   \
  X(EventCreate, cuEventCreate)                                                             \
  X(EventRecord, cuEventRecord)                                                             \
  X(EventSynchronize, cuEventSynchronize)                                                   \
  X(EventElapsedTime, cuEventElapsedTime)                                                   \
  X(EventDestroy, cuEventDestroy)                                                           \
  X(ModuleLoadData, cuModuleLoadData)                                                       \
  X(ModuleUnload, cuModuleUnload)                                                           \
  X(ModuleGetFunction, cuModuleGetFunction)                                                 \
  X(FuncGetAttribute, cuFuncGetAttribute)                                                   \
  X(FuncSetAttribute, cuFuncSetAttribute)                                                   \
  X(OccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(LaunchKernel, cuLaunchKernel)                                                           \
  X(LaunchKernelEx, cuLaunchKernelEx)                                                       \
  X(GraphInstantiate, cuGraphInstantiate)                                                   \
  X(GraphUpload, cuGraphUpload)                                                             \
  X(GraphLaunch, cuGraphLaunch)                                                             \
  X(GraphDestroy, cuGraphDestroy)                                                           \
  X(GraphExecDestroy, cuGraphExecDestroy)                                                   \
  X(GraphGetNodes, cuGraphGetNodes)                                                         \
  X(GraphKernelNodeGetParams, cuGraphKernelNodeGetParams)                                   \
  X(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams)                           \
  X(TensorMapEncodeTiled, cuTensorMapEncodeTiled)

struct CudaDriver {
#define TETRAD_CUDA_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_MEMBER)
#undef TETRAD_CUDA_MEMBER
};

// Opens the driver's library (once more each time: it stays open) and calls
// cuInit. FAILED_PRECONDITION where there is no driver, no device, or a driver
// without one of the entry points; the message says which.
absl::StatusOr<CudaDriver> LoadCudaDriver();

}  // namespace tetrad::cuda
