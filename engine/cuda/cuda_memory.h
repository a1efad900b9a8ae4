// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CudaMemory: allocations of the driver's virtual memory management, each with
// its own physical memory, address range and descriptor for export.
//
// Sealing makes our mapping read-only, so that a launch of ours that wrote it
// would fault; a descriptor exported before still lets its holder map it
// writable: the driver knows no seals. Later writable imports of a sealed
// allocation are refused by its identity, within this process.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

#include "engine/allocation_table.h"
#include "engine/cuda/context.h"
#include "engine/cuda/transfers.h"
#include "engine/device.h"

namespace tetrad::cuda {

class CudaMemory {
 public:
  // `granule`: of the driver, see Granule().
  CudaMemory(CudaContext& context, Transfers& transfers, int64_t limit_bytes, int64_t granule);
  ~CudaMemory();
  static absl::StatusOr<int64_t> Granule(CudaContext& context);

  absl::StatusOr<Allocation> Allocate(int64_t bytes);
  absl::Status Free(AllocationId id);
  absl::Status Seal(AllocationId id);
  absl::StatusOr<UniqueFd> Export(AllocationId id);
  absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity, int64_t bytes,
                                    bool writable);
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data);
  absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source);
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data);
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes);

  AllocationTable& table() { return table_; }
  MemoryUse use() const { return table_.use(); }

 private:
  using Handle = CUmemGenericAllocationHandle;
  // Takes `handle`, whatever happens. The bytes are reserved; they stay so.
  absl::StatusOr<CUdeviceptr> Map(Handle handle, int64_t bytes, bool writable);
  absl::Status SetAccess(CUdeviceptr address, int64_t bytes, bool writable);
  void ReleaseHandle(Handle handle);
  // Gives memory back to the driver, unless the device is lost: it may still use
  // the memory then.
  void Destroy(CUdeviceptr address, int64_t bytes, Handle handle);

  CudaContext& context_;
  Transfers& transfers_;
  const int64_t granule_;
  const IdentitySource identities_;
  AllocationTable table_;
};

}  // namespace tetrad::cuda
