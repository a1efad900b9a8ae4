// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CpuMemory: the memfd-backed allocations of the CPU device. Each is one memfd of
// sealed size, mapped once.
//
// Thread-safe. Copies run outside the table's lock and pin what they copy meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "engine/allocation_table.h"
#include "engine/device.h"
#include "engine/support/unique_fd.h"

namespace tetrad {

class CpuMemory {
 public:
  explicit CpuMemory(int64_t limit_bytes) : table_(limit_bytes) {}
  ~CpuMemory();

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
  static absl::StatusOr<UniqueFd> CreateMemfd(int64_t bytes);
  // `bytes` are reserved, and given back on failure.
  absl::StatusOr<Allocation> Map(UniqueFd fd, int64_t bytes, const AllocationIdentity& identity,
                                 bool writable);

  const IdentitySource identities_;
  AllocationTable table_;
};

}  // namespace tetrad
