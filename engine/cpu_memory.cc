// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kWriteSeals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
// Pieces in which Fill() asks its source: small enough to stay in a cache for
// what the source does with them next.
constexpr int64_t kFillPieceBytes = 1 << 20;

absl::Status SystemError(absl::string_view call, int error) {
  const std::string text = absl::StrCat(call, ": ", std::strerror(error));
  // An imported descriptor may allow less than is asked for, or be sealed just now.
  if (error == EPERM || error == EACCES) return ReasonError(Reason::kWeightsSealed, text);
  return error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EFBIG
             ? ReasonError(Reason::kDeviceMemory, text)
             : ReasonError(Reason::kInternal, text);
}

std::byte* Address(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

CpuMemory::~CpuMemory() {
  for (const AllocationTable::Removed& left : table_.TakeAll()) {
    ::munmap(Address(left.mapping.address), static_cast<size_t>(left.bytes));
    ::close(static_cast<int>(left.mapping.handle));
  }
}

absl::StatusOr<Allocation> CpuMemory::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("bytes=", bytes, " must not be negative"));
  }
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  bytes = RoundUp(std::clamp<int64_t>(bytes, 1, INT64_MAX - page), page);
  TETRAD_RETURN_IF_ERROR(table_.Reserve(bytes));
  auto fd = CreateMemfd(bytes);
  if (!fd.ok()) {
    table_.GiveBack(bytes);
    return fd.status();
  }
  return Map(*std::move(fd), bytes, identities_.Next(), /*writable=*/true);
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
                                             int64_t bytes, bool writable) {
  if (!fd) return ReasonError(Reason::kFieldMissing, "fd: there is none");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return SystemError("fstat", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  // Without the size seals the exporter could shrink it under our feet: SIGBUS.
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return ReasonError(Reason::kFieldMalformed, "fd: not a memfd whose size is sealed");
  }
  if (bytes <= 0 || info.st_size != bytes) {
    return ReasonError(Reason::kSizeMismatch,
                       absl::StrCat("bytes=", bytes, ": the memfd has ", info.st_size));
  }
  if (writable && (seals & kWriteSeals) != 0) {
    return ReasonError(Reason::kWeightsSealed,
                       "fd: the allocation is sealed, it can be mapped read-only");
  }
  TETRAD_RETURN_IF_ERROR(table_.Reserve(bytes));
  return Map(std::move(fd), bytes, identity, writable);
}

absl::StatusOr<Allocation> CpuMemory::Map(UniqueFd fd, int64_t bytes,
                                          const AllocationIdentity& identity, bool writable) {
  void* const address =
      ::mmap(nullptr, static_cast<size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    table_.GiveBack(bytes);
    return SystemError("mmap", error);
  }
  absl::Cleanup undo = [&] {
    ::munmap(address, static_cast<size_t>(bytes));
    table_.GiveBack(bytes);
  };
  const Allocation allocation =
      table_.Add(identity, bytes,
                 {reinterpret_cast<uint64_t>(address), static_cast<uint64_t>(fd.get())}, writable);
  std::move(undo).Cancel();
  fd.Release();
  return allocation;
}

absl::Status CpuMemory::Free(AllocationId id) {
  TETRAD_ASSIGN_OR_RETURN(const AllocationTable::Removed removed, table_.Remove(id));
  // Returning gigabytes takes the system long; nobody's copy waits for it.
  ::munmap(Address(removed.mapping.address), static_cast<size_t>(removed.bytes));
  ::close(static_cast<int>(removed.mapping.handle));
  table_.GiveBack(removed.bytes);
  return absl::OkStatus();
}

absl::Status CpuMemory::Seal(AllocationId id) {
  return table_.Seal(id, [](const AllocationTable::Removed& memory, bool writable) {
    // FUTURE_WRITE, unlike WRITE, can be set while our own writable mapping
    // exists; giving up our write permission completes it. Another mapping of the
    // same memory may have set it before.
    const int fd = static_cast<int>(memory.mapping.handle);
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) return SystemError("F_GET_SEALS", errno);
    if ((seals & kWriteSeals) == 0 &&
        ::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
      return SystemError("F_ADD_SEALS", errno);
    }
    if (writable && ::mprotect(Address(memory.mapping.address), static_cast<size_t>(memory.bytes),
                               PROT_READ) != 0) {
      return SystemError("mprotect", errno);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<UniqueFd> CpuMemory::Export(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(table_.Pin({id, 0, 0}, false).status());
  UniqueFd copy(::fcntl(static_cast<int>(table_.mapping(id).handle), F_DUPFD_CLOEXEC, 0));
  const int error = errno;
  table_.Unpin(id, false);
  if (!copy) return SystemError("F_DUPFD_CLOEXEC", error);
  return copy;
}

absl::Status CpuMemory::Write(AllocationId id, int64_t offset, std::span<const std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t to,
                          table_.Pin({id, offset, static_cast<int64_t>(data.size())}, true));
  if (!data.empty()) std::memcpy(Address(to), data.data(), data.size());
  table_.Unpin(id, true);
  return absl::OkStatus();
}

absl::Status CpuMemory::Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t to, table_.Pin({id, offset, bytes}, true));
  absl::Status status;
  for (int64_t done = 0; done < bytes && status.ok();) {
    const int64_t piece = std::min(bytes - done, kFillPieceBytes);
    status = source({Address(to) + done, static_cast<size_t>(piece)});
    done += piece;
  }
  table_.Unpin(id, true);
  return status;
}

absl::Status CpuMemory::Read(AllocationId id, int64_t offset, std::span<std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t from,
                          table_.Pin({id, offset, static_cast<int64_t>(data.size())}, false));
  if (!data.empty()) std::memcpy(data.data(), Address(from), data.size());
  table_.Unpin(id, false);
  return absl::OkStatus();
}

absl::Status CpuMemory::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t to, table_.Pin({id, offset, bytes}, true));
  std::memset(Address(to), 0, static_cast<size_t>(bytes));
  table_.Unpin(id, true);
  return absl::OkStatus();
}

}  // namespace tetrad
