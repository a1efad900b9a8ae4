// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AllocationTable: what every device has to know about its allocations, whatever
// they are made of: ids that are never reused, what holds them, and how many
// bytes there are.
//
// Ids carry a use count of their slot, so a freed id is refused with ABORTED and
// never names newer memory. Bindings and copies pin what they name; a pinned
// allocation is not removed, and one pinned for writing is not sealed. The table
// creates and destroys no memory: its owner does, and keeps in Mapping what it
// needs for it.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "engine/device.h"

namespace tetrad {

// Of this process, with a fresh uuid at every call.
class IdentitySource {
 public:
  IdentitySource();
  AllocationIdentity Next() const;

 private:
  AllocationIdentity process_;  // boot id and generation
};

class AllocationTable {
 public:
  // Where an allocation lies and what its owner knows it by (a file descriptor,
  // a handle of the driver).
  struct Mapping {
    uint64_t address = 0;
    uint64_t handle = 0;
  };
  struct Removed {
    Mapping mapping;
    int64_t bytes = 0;
  };

  explicit AllocationTable(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Counts `bytes` against the limit, before the system is asked for them.
  // RESOURCE_EXHAUSTED names the bytes wanted and left.
  absl::Status Reserve(int64_t bytes);
  void GiveBack(int64_t bytes);

  // `bytes` are reserved and stay so.
  Allocation Add(const AllocationIdentity& identity, int64_t bytes, const Mapping& mapping,
                 bool writable);
  // The same, but FAILED_PRECONDITION if it is to be writable and a live allocation
  // of this identity was sealed. In one step, so that no seal comes in between.
  absl::StatusOr<Allocation> AddUnlessSealed(const AllocationIdentity& identity, int64_t bytes,
                                             const Mapping& mapping, bool writable);
  // Refused while pinned. The bytes stay reserved until the owner has really
  // returned them and calls GiveBack().
  absl::StatusOr<Removed> Remove(AllocationId id);
  // Calls `seal` unless somebody writes the allocation; then it is read-only.
  // Under the lock, so that nobody pins it for writing meanwhile.
  absl::Status Seal(AllocationId id,
                    absl::FunctionRef<absl::Status(const Removed&, bool writable)> seal);

  // The address of a range, which keeps the allocation until Unpin(). `writable`:
  // refused for sealed memory, and told to Unpin() again.
  absl::StatusOr<uint64_t> Pin(const BlockRef& block, bool writable);
  void Unpin(AllocationId id, bool writable);
  // The mapping of a pinned allocation.
  Mapping mapping(AllocationId id) const;

  MemoryUse use() const;
  // All that is left, for the owner's destructor.
  std::vector<Removed> TakeAll();

 private:
  struct Slot {
    uint32_t uses = 0;  // odd: live
    int pins = 0;
    int write_pins = 0;  // of them, those that write
    bool writable = true;
    bool sealed = false;
    Mapping mapping;
    Allocation allocation;
  };
  // Both need mutex_.
  absl::StatusOr<Slot*> Find(AllocationId id);
  Allocation AddLocked(const AllocationIdentity& identity, int64_t bytes, const Mapping& mapping,
                       bool writable);

  const int64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;      // guarded by mutex_
  std::vector<uint32_t> free_;   // guarded by mutex_
  int64_t allocated_bytes_ = 0;  // reserved ones included; guarded by mutex_
  int64_t allocations_ = 0;      // guarded by mutex_
};

}  // namespace tetrad
