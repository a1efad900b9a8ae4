// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry points of devices and contexts.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "engine/cuda/errors.h"
#include "engine/cuda/simulated_driver/machine.h"

namespace tetrad::cuda::simulated {
namespace {

thread_local CUcontext current_context = nullptr;

// Of a device of compute capability 9.0.
constexpr std::pair<CUdevice_attribute, int> kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
};

}  // namespace

CUresult Machine::Init(unsigned int flags) {
  std::lock_guard lock(mutex_);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  initialised_ = true;
  return CUDA_SUCCESS;
}

CUresult Machine::DriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult Machine::GetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = Classify(error).name;
  return CUDA_SUCCESS;
}

CUresult Machine::GetErrorString(CUresult error, const char** text) {
  return GetErrorName(error, text);
}

CUresult Machine::DeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = hardware_.devices;
  return CUDA_SUCCESS;
}

CUresult Machine::DeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!HasDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult Machine::DeviceGetName(char* name, int length, CUdevice device) {
  if (name == nullptr || length < 1) return CUDA_ERROR_INVALID_VALUE;
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::string text = "Simulated GPU";
  const size_t size = std::min(text.size(), static_cast<size_t>(length) - 1);
  std::memcpy(name, text.data(), size);
  name[size] = 0;
  return CUDA_SUCCESS;
}

CUresult Machine::DeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  for (size_t i = 0; i < sizeof(uuid->bytes); ++i) {
    uuid->bytes[i] = static_cast<char>(0x51 * (i + 1) + static_cast<size_t>(device));
  }
  return CUDA_SUCCESS;
}

CUresult Machine::DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
    *value = hardware_.capability / 10;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
    *value = hardware_.capability % 10;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
    *value = hardware_.multiprocessors;
  } else {
    const auto* const known = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                           [&](const auto& a) { return a.first == attribute; });
    *value = known != std::end(kAttributes) ? known->second : 0;
  }
  return CUDA_SUCCESS;
}

CUresult Machine::DeviceTotalMem(size_t* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  *bytes = memory_bytes_;
  return CUDA_SUCCESS;
}

CUresult Machine::DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  auto found = std::find_if(contexts_.begin(), contexts_.end(),
                            [&](const auto& entry) { return entry.second.device == device; });
  if (found == contexts_.end()) {
    found = contexts_.emplace(NewHandle<CUcontext>(), Context{.device = device}).first;
  }
  ++found->second.retains;
  *context = found->first;
  return CUDA_SUCCESS;
}

CUresult Machine::DevicePrimaryCtxRelease(CUdevice device) {
  if (!HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(mutex_);
  const auto found = std::find_if(contexts_.begin(), contexts_.end(), [&](const auto& entry) {
    return entry.second.device == device && entry.second.retains > 0;
  });
  if (found == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (--found->second.retains == 0) DestroyContext(lock, found->first);
  return CUDA_SUCCESS;
}

void Machine::DestroyContext(Lock& lock, CUcontext handle) {
  Context& context = contexts_.at(handle);
  std::vector<std::shared_ptr<Stream>> left;
  for (const auto& [id, stream] : streams_) {
    if (stream->context == handle) left.push_back(stream);
  }
  const auto in_context = [&](const auto& entry) { return entry.second.context == handle; };
  const auto graphs = std::count_if(execs_.begin(), execs_.end(), [&](const auto& entry) {
    return entry.second->context == handle;
  });
  const auto modules = std::count_if(modules_.begin(), modules_.end(), in_context);
  // One device's program ends with what it made gone; in a broken context that may be impossible.
  if (broken_ == CUDA_SUCCESS && !wait_failed_ && !(left.empty() && graphs == 0 && modules == 0)) {
    NoteMisuse(absl::StrCat("a context was released with ", left.size(), " streams, ", graphs,
                            " instantiated graphs and ", modules, " modules"));
  }
  for (const auto& stream : left) CloseStream(stream);
  std::erase_if(streams_, [&](const auto& entry) { return entry.second->context == handle; });
  std::erase_if(execs_, [&](const auto& entry) { return entry.second->context == handle; });
  std::erase_if(functions_, [&](const auto& entry) {
    return modules_.at(entry.second.module).context == handle;
  });
  std::erase_if(modules_, in_context);
  const auto closed = std::move(context.closed);
  contexts_.erase(handle);
  for (const auto& stream : closed) {
    if (held_) stream->abandoned = true;
  }
  changed_.notify_all();
  lock.unlock();
  for (const auto& stream : closed) stream->worker.join();
  lock.lock();
}

CUresult Machine::CtxSetCurrent(CUcontext context) {
  std::lock_guard lock(mutex_);
  if (context != nullptr && !contexts_.contains(context)) return CUDA_ERROR_INVALID_CONTEXT;
  current_context = context;
  return CUDA_SUCCESS;
}

CUresult Machine::CtxGetCurrent(CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  *context = current_context;
  return CUDA_SUCCESS;
}

CUresult Machine::FindContext(CUcontext* context) const {
  if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!contexts_.contains(current_context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = current_context;
  return CUDA_SUCCESS;
}

CUresult Machine::RequireContext() const {
  CUcontext context;
  return FindContext(&context);
}

int Machine::CurrentDevice() const { return contexts_.at(current_context).device; }

CUresult Machine::CtxGetStreamPriorityRange(int* least, int* greatest) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult Machine::CtxSynchronize() {
  Lock lock(mutex_);
  CUcontext context;
  if (const CUresult result = FindContext(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = RefuseInCapture("cuCtxSynchronize"); result != CUDA_SUCCESS) {
    return result;
  }
  std::vector<std::shared_ptr<Stream>> all = contexts_.at(context).closed;
  for (const auto& [handle, stream] : streams_) {
    if (stream->context == context) all.push_back(stream);
  }
  for (const auto& stream : all) {
    if (const CUresult result = WaitFor(lock, *stream); result != CUDA_SUCCESS) return result;
  }
  return broken_;
}

}  // namespace tetrad::cuda::simulated
