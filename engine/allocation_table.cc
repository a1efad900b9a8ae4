// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/allocation_table.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

void FillRandom(std::span<uint8_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::getrandom(out.data() + done, out.size() - done, 0);
    TETRAD_CHECK(got > 0 || errno == EINTR);
    if (got > 0) done += static_cast<size_t>(got);
  }
}

// The kernel's boot id, as 16 bytes; zeros where there is no /proc.
std::array<uint8_t, 16> ReadBootId() {
  std::array<uint8_t, 16> id{};
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[36];
  if (!fd || ::read(fd.get(), text, sizeof(text)) != static_cast<ssize_t>(sizeof(text))) return id;
  size_t nibble = 0;
  for (const char c : text) {
    if (c == '-' || nibble >= 32) continue;
    const int value = c <= '9' ? c - '0' : c - 'a' + 10;
    id[nibble / 2] = static_cast<uint8_t>(id[nibble / 2] << 4 | (value & 0xF));
    ++nibble;
  }
  return id;
}

AllocationId MakeId(size_t slot, uint32_t uses) {
  return static_cast<AllocationId>(uint64_t{uses} << 32 | slot);
}

absl::Status CheckRange(const Allocation& allocation, int64_t offset, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset > allocation.bytes || bytes > allocation.bytes - offset) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("block: ", bytes, " bytes at offset ", offset,
                                    " exceed the allocation's ", allocation.bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

IdentitySource::IdentitySource() {
  process_.boot_id = ReadBootId();
  uint8_t generation[8];
  FillRandom(generation);
  std::memcpy(&process_.generation, generation, sizeof(generation));
}

AllocationIdentity IdentitySource::Next() const {
  AllocationIdentity identity = process_;
  FillRandom(identity.uuid);
  return identity;
}

absl::StatusOr<AllocationTable::Slot*> AllocationTable::Find(AllocationId id) {
  const uint64_t value = static_cast<uint64_t>(id);
  const size_t slot = static_cast<uint32_t>(value);
  if (slot >= slots_.size() || slots_[slot].uses != value >> 32 || slots_[slot].uses % 2 == 0) {
    return ReasonError(Reason::kStaleHandle, "allocation: the id is stale or was never given out");
  }
  return &slots_[slot];
}

absl::Status AllocationTable::Reserve(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes <= limit_bytes_ - allocated_bytes_) {
    allocated_bytes_ += bytes;
    return absl::OkStatus();
  }
  return ReasonError(Reason::kDeviceMemory,
                     absl::StrCat("device memory: ", bytes, " bytes wanted, ",
                                  limit_bytes_ - allocated_bytes_, " of ", limit_bytes_, " left"));
}

void AllocationTable::GiveBack(int64_t bytes) {
  std::lock_guard lock(mutex_);
  allocated_bytes_ -= bytes;
}

Allocation AllocationTable::Add(const AllocationIdentity& identity, int64_t bytes,
                                const Mapping& mapping, bool writable) {
  std::lock_guard lock(mutex_);
  return AddLocked(identity, bytes, mapping, writable);
}

absl::StatusOr<Allocation> AllocationTable::AddUnlessSealed(const AllocationIdentity& identity,
                                                            int64_t bytes, const Mapping& mapping,
                                                            bool writable) {
  std::lock_guard lock(mutex_);
  const auto seals = [&](const Slot& slot) {
    return slot.uses % 2 == 1 && slot.sealed && slot.allocation.identity == identity;
  };
  if (writable && std::ranges::any_of(slots_, seals)) {
    return ReasonError(Reason::kWeightsSealed,
                       "fd: the allocation is sealed, it can be mapped read-only");
  }
  return AddLocked(identity, bytes, mapping, writable);
}

Allocation AllocationTable::AddLocked(const AllocationIdentity& identity, int64_t bytes,
                                      const Mapping& mapping, bool writable) {
  if (free_.empty()) {
    // Room first for all to be free at once, so that Remove() needs none.
    free_.reserve(slots_.size() + 1);
    slots_.emplace_back();
    free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  ++slot.uses;
  slot.writable = writable;
  slot.sealed = false;
  slot.mapping = mapping;
  slot.allocation = {MakeId(index, slot.uses), identity, bytes};
  ++allocations_;
  return slot.allocation;
}

absl::StatusOr<AllocationTable::Removed> AllocationTable::Remove(AllocationId id) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
  if (slot->pins > 0) {
    return ReasonError(Reason::kBusy, "allocation: in use by a binding or copy");
  }
  ++slot->uses;
  --allocations_;
  free_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(id)));
  return Removed{slot->mapping, slot->allocation.bytes};
}

absl::Status AllocationTable::Seal(
    AllocationId id, absl::FunctionRef<absl::Status(const Removed&, bool writable)> seal) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
  if (slot->write_pins > 0) {
    return ReasonError(Reason::kBusy, "allocation: being written by a binding or copy");
  }
  TETRAD_RETURN_IF_ERROR(seal({slot->mapping, slot->allocation.bytes}, slot->writable));
  slot->writable = false;
  slot->sealed = true;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AllocationTable::Pin(const BlockRef& block, bool writable) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(block.allocation));
  TETRAD_RETURN_IF_ERROR(CheckRange(slot->allocation, block.offset, block.bytes));
  if (writable && !slot->writable) {
    return ReasonError(Reason::kWeightsSealed, "allocation: it is sealed");
  }
  ++slot->pins;
  slot->write_pins += writable;
  return slot->mapping.address + static_cast<uint64_t>(block.offset);
}

void AllocationTable::Unpin(AllocationId id, bool writable) {
  std::lock_guard lock(mutex_);
  const auto slot = Find(id);
  TETRAD_CHECK(slot.ok() && (*slot)->pins > 0 && (!writable || (*slot)->write_pins > 0));
  --(*slot)->pins;
  (*slot)->write_pins -= writable;
}

AllocationTable::Mapping AllocationTable::mapping(AllocationId id) const {
  std::lock_guard lock(mutex_);
  const auto slot = const_cast<AllocationTable*>(this)->Find(id);
  TETRAD_CHECK(slot.ok() && (*slot)->pins > 0);
  return (*slot)->mapping;
}

MemoryUse AllocationTable::use() const {
  std::lock_guard lock(mutex_);
  return {allocated_bytes_, limit_bytes_, allocations_};
}

std::vector<AllocationTable::Removed> AllocationTable::TakeAll() {
  std::lock_guard lock(mutex_);
  std::vector<Removed> all;
  for (Slot& slot : slots_) {
    if (slot.uses % 2 == 1) all.push_back({slot.mapping, slot.allocation.bytes});
    slot.uses += slot.uses % 2;
  }
  return all;
}

}  // namespace tetrad
