// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kWriteSeals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

absl::Status SystemError(absl::string_view call, int error) {
  const std::string text = absl::StrCat(call, ": ", std::strerror(error));
  // An imported descriptor may allow less than is asked for, or be sealed just now.
  if (error == EPERM || error == EACCES) return absl::FailedPreconditionError(text);
  return error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EFBIG
             ? absl::ResourceExhaustedError(text)
             : absl::InternalError(text);
}

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

AllocationIdentity ProcessIdentity() {
  AllocationIdentity identity;
  identity.boot_id = ReadBootId();
  uint8_t generation[8];
  FillRandom(generation);
  std::memcpy(&identity.generation, generation, sizeof(generation));
  return identity;
}

AllocationId MakeId(size_t slot, uint32_t uses) {
  return static_cast<AllocationId>(uint64_t{uses} << 32 | slot);
}

absl::Status CheckRange(const Allocation& allocation, int64_t offset, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset > allocation.bytes || bytes > allocation.bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("block: ", bytes, " bytes at offset ", offset,
                                                   " exceed the allocation's ", allocation.bytes,
                                                   " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

CpuMemory::CpuMemory(int64_t limit_bytes)
    : limit_bytes_(limit_bytes), process_(ProcessIdentity()) {}

CpuMemory::~CpuMemory() {
  for (Slot& slot : slots_) {
    if (slot.address != nullptr) ::munmap(slot.address, slot.allocation.bytes);
  }
}

absl::StatusOr<const CpuMemory::Slot*> CpuMemory::Find(AllocationId id) const {
  const uint64_t value = static_cast<uint64_t>(id);
  const size_t slot = static_cast<uint32_t>(value);
  if (slot >= slots_.size() || slots_[slot].uses != value >> 32 || slots_[slot].uses % 2 == 0) {
    return absl::AbortedError("allocation: the id is stale or was never given out");
  }
  return &slots_[slot];
}

absl::StatusOr<CpuMemory::Slot*> CpuMemory::Find(AllocationId id) {
  TETRAD_ASSIGN_OR_RETURN(const Slot* const slot, std::as_const(*this).Find(id));
  return const_cast<Slot*>(slot);
}

absl::Status CpuMemory::Reserve(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes <= limit_bytes_ - allocated_bytes_) {
    allocated_bytes_ += bytes;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes, " bytes wanted, ",
                                                   limit_bytes_ - allocated_bytes_, " of ",
                                                   limit_bytes_, " left"));
}

void CpuMemory::GiveBack(int64_t bytes) {
  std::lock_guard lock(mutex_);
  allocated_bytes_ -= bytes;
}

absl::StatusOr<Allocation> CpuMemory::Allocate(int64_t bytes) {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("bytes=", bytes, " must not be negative"));
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  bytes = RoundUp(std::clamp<int64_t>(bytes, 1, INT64_MAX - page), page);
  TETRAD_RETURN_IF_ERROR(Reserve(bytes));
  auto fd = CreateMemfd(bytes);
  if (!fd.ok()) {
    GiveBack(bytes);
    return fd.status();
  }
  AllocationIdentity identity = process_;
  FillRandom(identity.uuid);
  return Map(*std::move(fd), bytes, identity, /*writable=*/true);
}

absl::StatusOr<UniqueFd> CpuMemory::CreateMemfd(int64_t bytes) {
  UniqueFd fd(::memfd_create("tetrad", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return SystemError("memfd_create", errno);
  if (::ftruncate(fd.get(), bytes) != 0) return SystemError("ftruncate", errno);
  // Pages now rather than at first touch, where their lack would be a SIGBUS.
  int reserved;
  do {
    reserved = ::fallocate(fd.get(), 0, 0, bytes);
  } while (reserved != 0 && errno == EINTR);
  if (reserved != 0) return SystemError("fallocate", errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) return SystemError("F_ADD_SEALS", errno);
  return fd;
}

absl::StatusOr<Allocation> CpuMemory::Import(UniqueFd fd, const AllocationIdentity& identity,
                                             bool writable) {
  if (!fd) return absl::InvalidArgumentError("fd: there is none");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return SystemError("fstat", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  // Without the size seals the exporter could shrink it under our feet: SIGBUS.
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError("fd: not a memfd whose size is sealed");
  }
  if (info.st_size <= 0) return absl::InvalidArgumentError("fd: the memfd is empty");
  if (writable && (seals & kWriteSeals) != 0) {
    return absl::FailedPreconditionError(
        "fd: the allocation is sealed, it can be mapped read-only");
  }
  TETRAD_RETURN_IF_ERROR(Reserve(info.st_size));
  return Map(std::move(fd), info.st_size, identity, writable);
}

absl::StatusOr<Allocation> CpuMemory::Map(UniqueFd fd, int64_t bytes,
                                          const AllocationIdentity& identity, bool writable) {
  void* const address = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                               MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    GiveBack(bytes);
    return SystemError("mmap", error);
  }
  absl::Cleanup undo = [&] {
    ::munmap(address, bytes);
    GiveBack(bytes);
  };
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    // Room first for all to be free at once, so that Free() needs none.
    free_.reserve(slots_.size() + 1);
    slots_.emplace_back();
    free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  std::move(undo).Cancel();
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  ++slot.uses;
  slot.writable = writable;
  slot.fd = std::move(fd);
  slot.address = static_cast<std::byte*>(address);
  slot.allocation = {MakeId(index, slot.uses), identity, bytes};
  ++allocations_;
  return slot.allocation;
}

absl::Status CpuMemory::Free(AllocationId id) {
  UniqueFd fd;
  std::byte* address;
  int64_t bytes;
  {
    std::lock_guard lock(mutex_);
    TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
    if (slot->pins > 0) {
      return absl::FailedPreconditionError("allocation: in use by a binding or copy");
    }
    fd = std::move(slot->fd);
    address = std::exchange(slot->address, nullptr);
    bytes = slot->allocation.bytes;
    ++slot->uses;
    --allocations_;
    free_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(id)));
  }
  // Returning gigabytes takes the system long; nobody's copy should wait for it.
  ::munmap(address, bytes);
  fd.Reset();
  GiveBack(bytes);
  return absl::OkStatus();
}

absl::Status CpuMemory::Seal(AllocationId id) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
  if (slot->write_pins > 0) {
    return absl::FailedPreconditionError("allocation: being written by a binding or copy");
  }
  // FUTURE_WRITE, unlike WRITE, can be set while our own writable mapping
  // exists; giving up our write permission completes it. Another mapping of the
  // same memory may have set it before.
  const int seals = ::fcntl(slot->fd.get(), F_GET_SEALS);
  if (seals < 0) return SystemError("F_GET_SEALS", errno);
  if ((seals & kWriteSeals) == 0 &&
      ::fcntl(slot->fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return SystemError("F_ADD_SEALS", errno);
  }
  if (slot->writable && ::mprotect(slot->address, slot->allocation.bytes, PROT_READ) != 0) {
    return SystemError("mprotect", errno);
  }
  slot->writable = false;
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> CpuMemory::Export(AllocationId id) const {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const Slot* const slot, Find(id));
  UniqueFd copy(::fcntl(slot->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return SystemError("F_DUPFD_CLOEXEC", errno);
  return copy;
}

absl::StatusOr<std::byte*> CpuMemory::Pin(const BlockRef& block, bool writable) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(block.allocation));
  TETRAD_RETURN_IF_ERROR(CheckRange(slot->allocation, block.offset, block.bytes));
  if (writable && !slot->writable) return absl::FailedPreconditionError("allocation: it is sealed");
  ++slot->pins;
  slot->write_pins += writable;
  return slot->address + block.offset;
}

void CpuMemory::Unpin(AllocationId id, bool writable) {
  std::lock_guard lock(mutex_);
  const auto slot = Find(id);
  TETRAD_CHECK(slot.ok() && (*slot)->pins > 0 && (!writable || (*slot)->write_pins > 0));
  --(*slot)->pins;
  (*slot)->write_pins -= writable;
}

absl::Status CpuMemory::Write(AllocationId id, int64_t offset, std::span<const std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(std::byte* const to,
                          Pin({id, offset, static_cast<int64_t>(data.size())}, true));
  if (!data.empty()) std::memcpy(to, data.data(), data.size());
  Unpin(id, true);
  return absl::OkStatus();
}

absl::Status CpuMemory::Read(AllocationId id, int64_t offset, std::span<std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(const std::byte* const from,
                          Pin({id, offset, static_cast<int64_t>(data.size())}, false));
  if (!data.empty()) std::memcpy(data.data(), from, data.size());
  Unpin(id, false);
  return absl::OkStatus();
}

absl::Status CpuMemory::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  TETRAD_ASSIGN_OR_RETURN(std::byte* const to, Pin({id, offset, bytes}, true));
  std::memset(to, 0, static_cast<size_t>(bytes));
  Unpin(id, true);
  return absl::OkStatus();
}

MemoryUse CpuMemory::use() const {
  std::lock_guard lock(mutex_);
  return {allocated_bytes_, limit_bytes_, allocations_};
}

}  // namespace tetrad
