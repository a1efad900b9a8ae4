// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AddressSpace (tests only): the memory of a simulated driver.
//
// A device address is never accessible to the host: behind every range of them
// lies a shadow where the bytes are, found by At() alone. Physical memory is a
// memfd, known to other processes by its name.
//
// Not thread-safe: changes need the lock exclusively, At() shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <cuda.h>

#include "engine/support/unique_fd.h"

namespace tetrad::cuda::simulated {

// Device memory may be raced for: a word that two of its users have at a time is one value or
// the other, which plain C++ accesses do not promise. Small copies (counts, flags) by words.
void StoreRaced(std::byte* to, const std::byte* from, size_t bytes);
void LoadRaced(int32_t* to, const int32_t* from, int64_t count);

// Until nobody holds it: its handles, its mappings.
class Physical {
 public:
  // Null if the system lacks memory. Full of junk.
  static std::shared_ptr<Physical> Create(int device, size_t bytes, bool exportable);
  // Null if the descriptor names no simulated device memory.
  static std::shared_ptr<Physical> Adopt(int device, UniqueFd fd);

  int device() const { return device_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  uint64_t inode() const { return inode_; }
  bool exportable() const { return exportable_; }

 private:
  Physical(int device, UniqueFd fd, size_t bytes, uint64_t inode)
      : device_(device), fd_(std::move(fd)), bytes_(bytes), inode_(inode) {}
  const int device_;
  bool exportable_ = true;
  const UniqueFd fd_;
  const size_t bytes_;
  const uint64_t inode_;
};

class AddressSpace {
 public:
  enum class Access : uint8_t { kNone, kRead, kReadWrite };

  explicit AddressSpace(size_t granularity) : granularity_(granularity) {}
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  CUresult Reserve(size_t bytes, size_t alignment, CUdeviceptr* address);
  CUresult FreeReservation(CUdeviceptr address, size_t bytes);
  CUresult Map(CUdeviceptr address, size_t bytes, std::shared_ptr<Physical> physical);
  CUresult Unmap(CUdeviceptr address, size_t bytes);
  CUresult SetAccess(CUdeviceptr address, size_t bytes, Access access);

  CUresult AllocateHost(size_t bytes, void** host);
  CUresult FreeHost(void* host);
  // The page-locked range that holds all of it.
  bool IsPageLocked(const void* host, size_t bytes) const;
  CUresult HostAddress(const void* host, CUdeviceptr* address) const;
  // The device addresses [first, second) of a page-locked allocation.
  std::pair<CUdeviceptr, CUdeviceptr> HostRange(const void* host) const;

  // Where a device's access to the bytes goes; null, and `why` says why, if that is illegal.
  std::byte* At(CUdeviceptr address, size_t bytes, bool write, std::string* why) const;

  int64_t reservations() const { return static_cast<int64_t>(reservations_.size()); }
  int64_t mappings() const { return mappings_; }
  int64_t host_allocations() const { return static_cast<int64_t>(hosts_.size()); }

 private:
  struct Reservation {
    size_t bytes = 0;
    std::byte* shadow = nullptr;
  };
  struct Region {
    size_t bytes = 0;
    std::byte* shadow = nullptr;
    Access access = Access::kNone;
    std::shared_ptr<Physical> physical;  // null: page-locked host memory
  };
  struct Host {
    size_t bytes = 0;
    CUdeviceptr address = 0;
  };
  using Reservations = std::map<CUdeviceptr, Reservation>;
  Reservations::iterator ReservationOf(CUdeviceptr address, size_t bytes);

  const size_t granularity_;
  Reservations reservations_;
  std::map<CUdeviceptr, Region> regions_;  // by address; never overlap
  std::map<uintptr_t, Host> hosts_;        // by host address
  int64_t mappings_ = 0;
};

}  // namespace tetrad::cuda::simulated
