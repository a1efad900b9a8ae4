// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CpuMemory: the memfd-backed allocations of the CPU device.
//
// Each allocation is one sealed-size memfd, mapped once. Ids carry a use count
// of their slot, so a freed id is refused with ABORTED and never names newer
// memory. Bindings pin what they name; a pinned allocation is not freed, and
// one pinned for writing is not sealed: its writer would fault.
//
// Thread-safe. Copies run outside the lock and pin what they copy meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/support/unique_fd.h"

namespace tetrad {

class CpuMemory {
 public:
  explicit CpuMemory(int64_t limit_bytes);
  ~CpuMemory();

  absl::StatusOr<Allocation> Allocate(int64_t bytes);
  absl::Status Free(AllocationId id);
  absl::Status Seal(AllocationId id);
  absl::StatusOr<UniqueFd> Export(AllocationId id) const;
  absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity, bool writable);
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data);
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data);
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes);

  // The address of a range, which keeps the allocation until Unpin().
  // `writable`: refused for sealed memory, and told to Unpin() again.
  absl::StatusOr<std::byte*> Pin(const BlockRef& block, bool writable);
  void Unpin(AllocationId id, bool writable);

  MemoryUse use() const;

 private:
  struct Slot {
    uint32_t uses = 0;  // odd: live
    int pins = 0;
    int write_pins = 0;  // of them, those that write
    bool writable = true;
    UniqueFd fd;
    std::byte* address = nullptr;
    Allocation allocation;
  };
  absl::StatusOr<Slot*> Find(AllocationId id);
  absl::StatusOr<const Slot*> Find(AllocationId id) const;
  // Counts `bytes` against the limit, before the system is asked for them.
  absl::Status Reserve(int64_t bytes);
  void GiveBack(int64_t bytes);
  static absl::StatusOr<UniqueFd> CreateMemfd(int64_t bytes);
  // `bytes` are reserved, and given back on failure.
  absl::StatusOr<Allocation> Map(UniqueFd fd, int64_t bytes, const AllocationIdentity& identity,
                                 bool writable);

  const int64_t limit_bytes_;
  const AllocationIdentity process_;  // boot id and generation of this process
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;      // guarded by mutex_
  std::vector<uint32_t> free_;   // guarded by mutex_
  int64_t allocated_bytes_ = 0;  // being mapped included; guarded by mutex_
  int64_t allocations_ = 0;      // guarded by mutex_
};

}  // namespace tetrad
