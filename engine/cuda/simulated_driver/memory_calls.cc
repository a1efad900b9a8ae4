// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry points of memory: physical, mapped, page-locked, and copies.
#include <algorithm>
#include <cstring>

#include <fcntl.h>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/machine.h"

namespace tetrad::cuda::simulated {
namespace {

// Tells whether the bytes are the same.
uint64_t Sum(const std::byte* data, size_t bytes) {
  uint64_t sum = bytes;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, std::min(sizeof(word), bytes - at));
    sum = (sum ^ word) * 0x100000001B3u;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace

size_t Machine::UsedBytes(int device) const {
  size_t used = 0;
  for (const auto& [inode, weak] : physical_) {
    const auto physical = weak.lock();
    if (physical != nullptr && physical->device() == device) used += physical->bytes();
  }
  for (const auto& [handle, module] : modules_) {
    if (module.device == device) used += hardware_.module_bytes;
  }
  for (const auto& [handle, exec] : execs_) {
    if (exec->device == device) used += hardware_.graph_exec_bytes;
  }
  return used;
}

bool Machine::HasRoom(int device, size_t bytes) const {
  const size_t used = UsedBytes(device);
  return used <= memory_bytes_ && bytes <= memory_bytes_ - used;
}

CUresult Machine::MemGetInfo(size_t* free, size_t* total) {
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  const size_t used = UsedBytes(CurrentDevice());
  *free = memory_bytes_ - std::min(used, memory_bytes_);
  *total = memory_bytes_;
  return CUDA_SUCCESS;
}

CUresult Machine::MemGetAllocationGranularity(size_t* granularity,
                                              const CUmemAllocationProp* properties,
                                              CUmemAllocationGranularity_flags flags) {
  if (granularity == nullptr || properties == nullptr ||
      (flags != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
       flags != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *granularity = hardware_.granularity;
  return CUDA_SUCCESS;
}

CUresult Machine::MemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                                    CUdeviceptr, unsigned long long flags) {
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock memory(memory_mutex_);
  return memory_.Reserve(bytes, alignment, address);
}

CUresult Machine::MemAddressFree(CUdeviceptr address, size_t bytes) {
  std::unique_lock memory(memory_mutex_);
  return memory_.FreeReservation(address, bytes);
}

CUresult Machine::AddHandle(std::shared_ptr<Physical> physical,
                            CUmemGenericAllocationHandle* handle) {
  *handle = NewHandle<CUmemGenericAllocationHandle>();
  physical_[physical->inode()] = physical;
  handles_[*handle] = std::move(physical);
  std::erase_if(physical_, [](const auto& entry) { return entry.second.expired(); });
  return CUDA_SUCCESS;
}

CUresult Machine::MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                            const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || properties == nullptr || flags != 0 || bytes == 0 ||
      bytes % hardware_.granularity != 0 || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->win32HandleMetaData != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const auto types = properties->requestedHandleTypes;
  if (types != CU_MEM_HANDLE_TYPE_NONE && types != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::lock_guard lock(mutex_);
  if (!HasRoom(properties->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical =
      Physical::Create(properties->location.id, bytes, types != CU_MEM_HANDLE_TYPE_NONE);
  if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return AddHandle(std::move(physical), handle);
}

CUresult Machine::MemRelease(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  if (handles_.erase(handle) == 1) return CUDA_SUCCESS;
  return Misused("cuMemRelease of a handle that is not live", CUDA_ERROR_INVALID_VALUE);
}

CUresult Machine::MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end() || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock memory(memory_mutex_);
  return memory_.Map(address, bytes, found->second);
}

void Machine::NoteUses(const AddressRange& range, const char* call) {
  const auto look = [&](const Stream& stream) {
    for (const Work& work : stream.queue) {
      for (const AddressRange& use : work.uses) {
        if (use.begin < range.end && std::max(use.end, use.begin + 1) > range.begin) {
          NoteMisuse(absl::StrCat(call, " of memory at 0x", absl::Hex(use.begin),
                                  " that work under way uses"));
        }
      }
    }
  };
  // What a broken context had to do is over.
  if (broken_ != CUDA_SUCCESS) return;
  for (const auto& [handle, stream] : streams_) look(*stream);
  for (const auto& [handle, context] : contexts_) {
    for (const auto& stream : context.closed) look(*stream);
  }
}

CUresult Machine::MemUnmap(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(mutex_);
  NoteUses({address, address + bytes}, "cuMemUnmap");
  std::unique_lock memory(memory_mutex_);
  const CUresult result = memory_.Unmap(address, bytes);
  return result == CUDA_SUCCESS ? result : Misused("cuMemUnmap of what is not mapped", result);
}

CUresult Machine::MemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                               size_t count) {
  if (access == nullptr || count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasDevice(access->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  AddressSpace::Access wanted;
  if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    wanted = AddressSpace::Access::kNone;
  } else if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
    wanted = AddressSpace::Access::kRead;
  } else if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    wanted = AddressSpace::Access::kReadWrite;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::unique_lock memory(memory_mutex_);
  return memory_.SetAccess(address, bytes, wanted);
}

CUresult Machine::MemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags) {
  std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (out == nullptr || flags != 0 || found == handles_.end() || !found->second->exportable() ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = ::fcntl(found->second->fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

CUresult Machine::MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                               void* os_handle, CUmemAllocationHandleType type) {
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The caller keeps its own.
  UniqueFd fd(
      ::fcntl(static_cast<int>(reinterpret_cast<uintptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  auto physical = Physical::Adopt(/*device=*/0, std::move(fd));
  if (physical == nullptr) return CUDA_ERROR_UNKNOWN;  // as drivers say of some
  if (const auto known = physical_.find(physical->inode()); known != physical_.end()) {
    if (auto live = known->second.lock(); live != nullptr) physical = std::move(live);
  }
  return AddHandle(std::move(physical), handle);
}

CUresult Machine::MemHostAlloc(void** host, size_t bytes, unsigned int flags) {
  constexpr unsigned int kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (host == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = RefuseInCapture("cuMemHostAlloc"); result != CUDA_SUCCESS) {
    return result;
  }
  std::unique_lock memory(memory_mutex_);
  return memory_.AllocateHost(bytes, host);
}

CUresult Machine::MemFreeHost(void* host) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) {
    return Misused("cuMemFreeHost without a context", result);
  }
  if (const CUresult result = RefuseInCapture("cuMemFreeHost"); result != CUDA_SUCCESS) {
    return result;
  }
  std::pair<CUdeviceptr, CUdeviceptr> range;
  {
    std::shared_lock memory(memory_mutex_);
    range = memory_.HostRange(host);
  }
  NoteUses({range.first, range.second}, "cuMemFreeHost");
  std::unique_lock memory(memory_mutex_);
  const CUresult result = memory_.FreeHost(host);
  return result == CUDA_SUCCESS ? result : Misused("cuMemFreeHost of unknown memory", result);
}

CUresult Machine::MemHostGetDevicePointer(CUdeviceptr* address, void* host, unsigned int flags) {
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  std::shared_lock memory(memory_mutex_);
  return memory_.HostAddress(host, address);
}

CUresult Machine::EnqueueCopy(CUdeviceptr device, const void* host, size_t bytes, bool to_device,
                              CUstream handle) {
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(handle, "a copy", &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  Work work;
  work.uses.push_back({device, device + bytes});
  bool page_locked;
  {
    std::string why;
    std::shared_lock memory(memory_mutex_);
    if (memory_.At(device, bytes, /*write=*/false, &why) == nullptr) {
      return Misused(absl::StrCat("a copy: ", why), CUDA_ERROR_INVALID_VALUE);
    }
    page_locked = memory_.IsPageLocked(host, bytes);
    CUdeviceptr at = 0;
    if (page_locked && memory_.HostAddress(host, &at) == CUDA_SUCCESS) {
      work.uses.push_back({at, at + bytes});
    }
  }
  std::byte* const memory = static_cast<std::byte*>(const_cast<void*>(host));
  if (to_device) {
    // Pageable memory is free again when the call returns; page-locked memory is
    // read when the stream gets there.
    std::vector<std::byte> copied;
    if (!page_locked) copied.assign(memory, memory + bytes);
    const uint64_t sum = page_locked ? Sum(memory, bytes) : 0;
    work.run = [this, device, memory, bytes, page_locked, sum,
                copied = std::move(copied)](std::string* why) {
      std::byte* const to = memory_.At(device, bytes, /*write=*/true, why);
      if (to == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
      StoreRaced(to, page_locked ? memory : copied.data(), bytes);
      if (page_locked && Sum(to, bytes) != sum) {
        *why = "a page-locked source changed before its copy was done";
      }
      return CUDA_SUCCESS;
    };
  } else {
    // Until the copy is done the destination may hold anything.
    if (page_locked) std::memset(memory, 0x5C, bytes);
    work.run = [this, device, memory, bytes](std::string* why) {
      const std::byte* const from = memory_.At(device, bytes, /*write=*/false, why);
      if (from == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memcpy(memory, from, bytes);
      return CUDA_SUCCESS;
    };
  }
  Enqueue(*stream, std::move(work));
  return to_device || page_locked ? CUDA_SUCCESS : WaitFor(lock, *stream);
}

CUresult Machine::MemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return EnqueueCopy(to, from, bytes, /*to_device=*/true, stream);
}

CUresult Machine::MemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return EnqueueCopy(from, to, bytes, /*to_device=*/false, stream);
}

CUresult Machine::MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(handle, "a copy", &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  if (from < to + bytes && to < from + bytes) {
    return Misused("a copy whose source and destination overlap", CUDA_ERROR_INVALID_VALUE);
  }
  Work work;
  for (const CUdeviceptr address : {to, from}) {
    std::string why;
    std::shared_lock memory(memory_mutex_);
    if (memory_.At(address, bytes, /*write=*/false, &why) == nullptr) {
      return Misused(absl::StrCat("a copy: ", why), CUDA_ERROR_INVALID_VALUE);
    }
    work.uses.push_back({address, address + bytes});
  }
  work.run = [this, to, from, bytes](std::string* why) {
    const std::byte* const source = memory_.At(from, bytes, /*write=*/false, why);
    std::byte* const target = source ? memory_.At(to, bytes, /*write=*/true, why) : nullptr;
    if (target == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memcpy(target, source, bytes);
    return CUDA_SUCCESS;
  };
  Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult Machine::MemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                CUstream handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(handle, "a fill", &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  {
    std::string why;
    std::shared_lock memory(memory_mutex_);
    if (memory_.At(to, bytes, /*write=*/false, &why) == nullptr) {
      return Misused(absl::StrCat("a fill: ", why), CUDA_ERROR_INVALID_VALUE);
    }
  }
  Work work;
  work.uses.push_back({to, to + bytes});
  work.run = [this, to, value, bytes](std::string* why) {
    std::byte* const memory = memory_.At(to, bytes, /*write=*/true, why);
    if (memory == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memset(memory, value, bytes);
    return CUDA_SUCCESS;
  };
  Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace tetrad::cuda::simulated
