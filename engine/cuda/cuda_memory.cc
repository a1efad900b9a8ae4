// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fcntl.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"

namespace tetrad::cuda {
namespace {

CUmemAllocationProp Properties(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

}  // namespace

CudaMemory::CudaMemory(CudaContext& context, Transfers& transfers, int64_t limit_bytes,
                       int64_t granule)
    : context_(context), transfers_(transfers), granule_(granule), table_(limit_bytes) {}

CudaMemory::~CudaMemory() {
  if (!context_.Enter().ok()) return;
  for (const AllocationTable::Removed& left : table_.TakeAll()) {
    Destroy(left.mapping.address, left.bytes, left.mapping.handle);
  }
}

absl::StatusOr<int64_t> CudaMemory::Granule(CudaContext& context) {
  const CUmemAllocationProp properties = Properties(context.device());
  size_t granule = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context, MemGetAllocationGranularity, &granule, &properties,
                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  return static_cast<int64_t>(granule);
}

absl::StatusOr<Allocation> CudaMemory::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("bytes=", bytes, " must not be negative"));
  }
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  bytes = RoundUp(std::clamp<int64_t>(bytes, 1, INT64_MAX - granule_), granule_);
  TETRAD_RETURN_IF_ERROR(table_.Reserve(bytes));
  absl::Cleanup give_back = [&] { table_.GiveBack(bytes); };
  const CUmemAllocationProp properties = Properties(context_.device());
  Handle handle = 0;
  CUdeviceptr address = 0;
  {
    const std::lock_guard lock(context_.memory_mutex());
    TETRAD_RETURN_IF_ERROR(context_.Check(
        context_.driver().MemCreate(&handle, static_cast<size_t>(bytes), &properties, 0),
        "cuMemCreate", absl::StrCat(bytes, " bytes of device memory")));
    TETRAD_ASSIGN_OR_RETURN(address, Map(handle, bytes, /*writable=*/true));
  }
  absl::Cleanup destroy = [&] {
    const std::lock_guard lock(context_.memory_mutex());
    Destroy(address, bytes, handle);
  };
  // The driver may give memory with what another program left in it.
  TETRAD_RETURN_IF_ERROR(transfers_.Clear(address, bytes));
  const Allocation allocation =
      table_.Add(identities_.Next(), bytes, {address, handle}, /*writable=*/true);
  std::move(destroy).Cancel();
  std::move(give_back).Cancel();
  return allocation;
}

absl::StatusOr<CUdeviceptr> CudaMemory::Map(Handle handle, int64_t bytes, bool writable) {
  absl::Cleanup release = [&] { ReleaseHandle(handle); };
  const size_t size = static_cast<size_t>(bytes);
  CUdeviceptr address = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, MemAddressReserve, &address, size, 0, 0, 0));
  absl::Cleanup free_range = [&] {
    context_.Release(context_.driver().MemAddressFree(address, size), "cuMemAddressFree");
  };
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, MemMap, address, size, 0, handle, 0));
  absl::Cleanup unmap = [&] {
    context_.Release(context_.driver().MemUnmap(address, size), "cuMemUnmap");
  };
  TETRAD_RETURN_IF_ERROR(SetAccess(address, bytes, writable));
  std::move(unmap).Cancel();
  std::move(free_range).Cancel();
  std::move(release).Cancel();
  return address;
}

absl::Status CudaMemory::SetAccess(CUdeviceptr address, int64_t bytes, bool writable) {
  const CUmemAccessDesc access = {
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context_.device()},
      .flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ};
  return TETRAD_CUDA(context_, MemSetAccess, address, static_cast<size_t>(bytes), &access, 1);
}

void CudaMemory::ReleaseHandle(Handle handle) {
  context_.Release(context_.driver().MemRelease(handle), "cuMemRelease");
}

void CudaMemory::Destroy(CUdeviceptr address, int64_t bytes, Handle handle) {
  if (!context_.health().ok()) return;
  const size_t size = static_cast<size_t>(bytes);
  context_.Release(context_.driver().MemUnmap(address, size), "cuMemUnmap");
  context_.Release(context_.driver().MemAddressFree(address, size), "cuMemAddressFree");
  ReleaseHandle(handle);
}

absl::Status CudaMemory::Free(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  TETRAD_ASSIGN_OR_RETURN(const AllocationTable::Removed removed, table_.Remove(id));
  {
    const std::lock_guard lock(context_.memory_mutex());
    Destroy(removed.mapping.address, removed.bytes, removed.mapping.handle);
  }
  table_.GiveBack(removed.bytes);
  return absl::OkStatus();
}

absl::Status CudaMemory::Seal(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  return table_.Seal(id, [&](const AllocationTable::Removed& memory, bool writable) {
    return writable ? SetAccess(memory.mapping.address, memory.bytes, false) : absl::OkStatus();
  });
}

absl::StatusOr<UniqueFd> CudaMemory::Export(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  TETRAD_RETURN_IF_ERROR(table_.Pin({id, 0, 0}, false).status());
  absl::Cleanup unpin = [&] { table_.Unpin(id, false); };
  int fd = -1;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, MemExportToShareableHandle, &fd,
                                     table_.mapping(id).handle,
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  UniqueFd exported(fd);
  static_cast<void>(::fcntl(fd, F_SETFD, FD_CLOEXEC));
  return exported;
}

absl::StatusOr<Allocation> CudaMemory::Import(UniqueFd fd, const AllocationIdentity& identity,
                                              int64_t bytes, bool writable) {
  if (!fd) return ReasonError(Reason::kFieldMissing, "fd: there is none");
  if (bytes <= 0 || bytes % granule_ != 0) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("bytes=", bytes, " must be a positive multiple of ", granule_));
  }
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  // What the driver refuses here is the descriptor's fault, unless memory lacks
  // or the device is lost.
  const auto of_descriptor = [&](const absl::Status& status) {
    if (absl::IsResourceExhausted(status) || !context_.health().ok()) return status;
    return ReasonError(Reason::kFieldMalformed,
                       absl::StrCat("fd: no exported allocation of ", bytes,
                                    " bytes of this device: ", status.message()));
  };
  Handle handle = 0;
  // The driver calls some descriptors that are not its own an unknown error; that
  // is not the end of the device, so its health is not told.
  const CUresult imported = context_.driver().MemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())),  // NOLINT: so it wants it
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (imported != CUDA_SUCCESS) {
    if (imported != CUDA_ERROR_UNKNOWN)
      context_.Release(imported, "cuMemImportFromShareableHandle");
    return of_descriptor(CudaStatus(imported, "cuMemImportFromShareableHandle"));
  }
  if (const absl::Status reserved = table_.Reserve(bytes); !reserved.ok()) {
    ReleaseHandle(handle);
    return reserved;
  }
  absl::Cleanup give_back = [&] { table_.GiveBack(bytes); };
  const auto address = Map(handle, bytes, writable);
  if (!address.ok()) return of_descriptor(address.status());
  absl::Cleanup destroy = [&] { Destroy(*address, bytes, handle); };
  // Only now, together with becoming known: a seal is before or after both.
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation,
                          table_.AddUnlessSealed(identity, bytes, {*address, handle}, writable));
  std::move(destroy).Cancel();
  std::move(give_back).Cancel();
  return allocation;
}

absl::Status CudaMemory::Write(AllocationId id, int64_t offset, std::span<const std::byte> data) {
  return Fill(id, offset, static_cast<int64_t>(data.size()), [&](std::span<std::byte> out) {
    std::memcpy(out.data(), data.data(), out.size());
    data = data.subspan(out.size());
    return absl::OkStatus();
  });
}

absl::Status CudaMemory::Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t to, table_.Pin({id, offset, bytes}, true));
  const absl::Status status = transfers_.ToDevice(to, bytes, source);
  table_.Unpin(id, true);
  return status;
}

absl::Status CudaMemory::Read(AllocationId id, int64_t offset, std::span<std::byte> data) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t from,
                          table_.Pin({id, offset, static_cast<int64_t>(data.size())}, false));
  const absl::Status status = transfers_.FromDevice(from, data);
  table_.Unpin(id, false);
  return status;
}

absl::Status CudaMemory::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t to, table_.Pin({id, offset, bytes}, true));
  const absl::Status status = transfers_.Clear(to, bytes);
  table_.Unpin(id, true);
  return status;
}

}  // namespace tetrad::cuda
