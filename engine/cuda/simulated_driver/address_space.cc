// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/address_space.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad::cuda::simulated {

void StoreRaced(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kSmall = 4096;
  if (bytes > kSmall || bytes % sizeof(int32_t) != 0 ||
      reinterpret_cast<uintptr_t>(to) % alignof(int32_t) != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += sizeof(int32_t)) {
    int32_t word;
    std::memcpy(&word, from + i, sizeof(word));
    std::atomic_ref(*reinterpret_cast<int32_t*>(to + i)).store(word, std::memory_order_relaxed);
  }
}

void LoadRaced(int32_t* to, const int32_t* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = std::atomic_ref(const_cast<int32_t&>(from[i])).load(std::memory_order_relaxed);
  }
}
namespace {

constexpr char kMemoryName[] = "tetrad-simulated-device-memory";
// No multiple of anything; as FP16, FP32 or count plainly wrong.
constexpr int kJunk = 0xA9;
constexpr size_t kHostPage = 4096;

std::byte* ReserveAddresses(size_t bytes, size_t alignment) {
  void* const all = ::mmap(nullptr, bytes + alignment, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  std::byte* const from = static_cast<std::byte*>(all);
  const size_t before = -reinterpret_cast<uintptr_t>(all) & (alignment - 1);
  if (before > 0) ::munmap(from, before);
  ::munmap(from + before + bytes, alignment - before);
  return from + before;
}

CUdeviceptr DeviceAddress(const std::byte* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

std::shared_ptr<Physical> Physical::Create(int device, size_t bytes, bool exportable) {
  UniqueFd fd(::memfd_create(kMemoryName, MFD_CLOEXEC));
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const all = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (all == MAP_FAILED) return nullptr;
  std::memset(all, kJunk, bytes);
  ::munmap(all, bytes);
  std::shared_ptr<Physical> made = Adopt(device, std::move(fd));
  if (made != nullptr) made->exportable_ = exportable;
  return made;
}

std::shared_ptr<Physical> Physical::Adopt(int device, UniqueFd fd) {
  char name[128] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", fd.get());
  if (::readlink(link.c_str(), name, sizeof(name) - 1) < 0) return nullptr;
  if (!absl::StartsWith(name, absl::StrCat("/memfd:", kMemoryName))) return nullptr;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return nullptr;
  return std::shared_ptr<Physical>(
      new Physical(device, std::move(fd), static_cast<size_t>(status.st_size), status.st_ino));
}

AddressSpace::~AddressSpace() {
  while (!hosts_.empty()) FreeHost(Pointer(hosts_.begin()->first));
  for (const auto& [address, reservation] : reservations_) {
    ::munmap(Pointer(address), reservation.bytes);
    ::munmap(reservation.shadow, reservation.bytes);
  }
}

CUresult AddressSpace::Reserve(size_t bytes, size_t alignment, CUdeviceptr* address) {
  if (bytes == 0 || bytes % granularity_ != 0 || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > size_t{1} << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t aligned = std::max(alignment, std::bit_ceil(granularity_));
  std::byte* const device = ReserveAddresses(bytes, aligned);
  std::byte* const shadow = device != nullptr ? ReserveAddresses(bytes, aligned) : nullptr;
  if (shadow == nullptr) {
    if (device != nullptr) ::munmap(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = DeviceAddress(device);
  reservations_[*address] = {bytes, shadow};
  return CUDA_SUCCESS;
}

CUresult AddressSpace::FreeReservation(CUdeviceptr address, size_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = regions_.lower_bound(address);
  if (inside != regions_.end() && inside->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(Pointer(address), bytes);
  ::munmap(found->second.shadow, bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

AddressSpace::Reservations::iterator AddressSpace::ReservationOf(CUdeviceptr address,
                                                                 size_t bytes) {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return reservations_.end();
  --after;
  const size_t offset = address - after->first;
  if (offset > after->second.bytes || bytes > after->second.bytes - offset) {
    return reservations_.end();
  }
  return after;
}

CUresult AddressSpace::Map(CUdeviceptr address, size_t bytes, std::shared_ptr<Physical> physical) {
  if (bytes == 0 || bytes != physical->bytes() || address % granularity_ != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto reservation = ReservationOf(address, bytes);
  if (reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto next = regions_.lower_bound(address);
  if (next != regions_.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != regions_.begin() &&
      std::prev(next)->first + std::prev(next)->second.bytes > address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::byte* const shadow = reservation->second.shadow + (address - reservation->first);
  if (::mmap(shadow, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd(), 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  regions_[address] = {bytes, shadow, Access::kNone, std::move(physical)};
  ++mappings_;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Unmap(CUdeviceptr address, size_t bytes) {
  const auto found = regions_.find(address);
  if (found == regions_.end() || found->second.bytes != bytes ||
      found->second.physical == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TETRAD_CHECK(::mmap(found->second.shadow, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                      0) != MAP_FAILED);
  regions_.erase(found);
  --mappings_;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::SetAccess(CUdeviceptr address, size_t bytes, Access access) {
  const CUdeviceptr end = address + bytes;
  const auto first = regions_.find(address);
  if (bytes == 0 || first == regions_.end()) return CUDA_ERROR_INVALID_VALUE;
  auto last = first;
  for (CUdeviceptr at = address; at != end; ++last) {
    if (last == regions_.end() || last->first != at || last->second.physical == nullptr ||
        last->second.bytes > end - at) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    at += last->second.bytes;
  }
  const int protection = access == Access::kNone   ? PROT_NONE
                         : access == Access::kRead ? PROT_READ
                                                   : PROT_READ | PROT_WRITE;
  for (auto region = first; region != last; ++region) {
    if (::mprotect(region->second.shadow, region->second.bytes, protection) != 0) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    region->second.access = access;
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::AllocateHost(size_t bytes, void** host) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t whole = (bytes + kHostPage - 1) / kHostPage * kHostPage;
  std::byte* const device = ReserveAddresses(whole, kHostPage);
  // From the heap, so that the address sanitizer watches its ends.
  void* const memory = device != nullptr ? std::aligned_alloc(kHostPage, whole) : nullptr;
  if (memory == nullptr) {
    if (device != nullptr) ::munmap(device, whole);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memset(memory, kJunk, whole);
  hosts_[reinterpret_cast<uintptr_t>(memory)] = {bytes, DeviceAddress(device)};
  regions_[DeviceAddress(device)] = {bytes, static_cast<std::byte*>(memory), Access::kReadWrite,
                                     nullptr};
  *host = memory;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::FreeHost(void* host) {
  const auto found = hosts_.find(reinterpret_cast<uintptr_t>(host));
  if (found == hosts_.end()) return CUDA_ERROR_INVALID_VALUE;
  const size_t whole = (found->second.bytes + kHostPage - 1) / kHostPage * kHostPage;
  ::munmap(Pointer(found->second.address), whole);
  regions_.erase(found->second.address);
  hosts_.erase(found);
  std::free(host);
  return CUDA_SUCCESS;
}

bool AddressSpace::IsPageLocked(const void* host, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(host);
  auto after = hosts_.upper_bound(address);
  if (after == hosts_.begin()) return false;
  --after;
  const size_t offset = address - after->first;
  return offset <= after->second.bytes && bytes <= after->second.bytes - offset;
}

CUresult AddressSpace::HostAddress(const void* host, CUdeviceptr* address) const {
  const auto at = reinterpret_cast<uintptr_t>(host);
  auto after = hosts_.upper_bound(at);
  if (after == hosts_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --after;
  if (at - after->first >= after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *address = after->second.address + (at - after->first);
  return CUDA_SUCCESS;
}

std::pair<CUdeviceptr, CUdeviceptr> AddressSpace::HostRange(const void* host) const {
  const auto found = hosts_.find(reinterpret_cast<uintptr_t>(host));
  if (found == hosts_.end()) return {};
  return {found->second.address, found->second.address + found->second.bytes};
}

std::byte* AddressSpace::At(CUdeviceptr address, size_t bytes, bool write, std::string* why) const {
  const auto refuse = [&](const char* reason) {
    *why = absl::StrCat(write ? "write of " : "read of ", bytes, " bytes at 0x", absl::Hex(address),
                        ": ", reason);
    return nullptr;
  };
  auto region = regions_.upper_bound(address);
  if (region == regions_.begin()) return refuse("nothing is mapped there");
  --region;
  const size_t offset = address - region->first;
  if (offset >= region->second.bytes) return refuse("nothing is mapped there");
  std::byte* const result = region->second.shadow + offset;
  const uintptr_t delta = reinterpret_cast<uintptr_t>(region->second.shadow) - region->first;
  for (CUdeviceptr at = region->first;; ++region) {
    if (region == regions_.end() || region->first != at) return refuse("its end is not mapped");
    // Of another reservation, though the addresses follow on.
    if (reinterpret_cast<uintptr_t>(region->second.shadow) - at != delta) {
      return refuse("its end is not mapped");
    }
    const Access access = region->second.access;
    if (access == Access::kNone) return refuse("no access was set");
    if (write && access == Access::kRead) return refuse("mapped for reading");
    at += region->second.bytes;
    if (at - address >= bytes) return result;
  }
}

}  // namespace tetrad::cuda::simulated
