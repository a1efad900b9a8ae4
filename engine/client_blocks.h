// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ClientBlocks: device memory that clients hold under a lease.
//
// A block is zeroed memory of the pool with a name. Free(), and the end of the
// lease, take the name away at once; the memory goes back when the last copy
// or launch that uses it lets go. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/handle_table.h"
#include "engine/keyed_write.h"
#include "engine/leases.h"
#include "engine/pool.h"
#include "engine/reclaimer.h"
#include "engine/support/byte_budget.h"
#include "engine/support/instant.h"

namespace tetrad {

// A range of device memory that a client may write, read and name in requests.
struct BlockInfo {
  std::string block;
  std::string lease;
  int64_t bytes = 0;
};

// A range of a block, in bytes.
struct BlockRange {
  std::string_view block;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class ClientBlock : public Reclaimable {
 public:
  ClientBlock(Pool& pool, ByteBudget& held, std::string_view lease, int64_t bytes, BlockRef memory);
  ~ClientBlock();
  ClientBlock(const ClientBlock&) = delete;

  const std::string& lease() const { return lease_; }
  int64_t bytes() const { return bytes_; }
  // INVALID_ARGUMENT if the range is not inside.
  absl::StatusOr<BlockRef> Range(int64_t offset, int64_t bytes) const;
  // Keeps no memory of the device.
  const std::shared_ptr<KeyedWrite>& keyed_write() const { return keyed_write_; }

 private:
  Pool& pool_;
  ByteBudget& held_;
  const std::string lease_;
  const int64_t bytes_;
  const BlockRef memory_;
  const std::shared_ptr<KeyedWrite> keyed_write_ = std::make_shared<KeyedWrite>();
};

class ClientBlocks {
 public:
  ClientBlocks(int64_t device_bytes, Pool& pool, Reclaimer& reclaimer, Leases& leases,
               ByteBudget& held, const LeaseLimits& limits, uint64_t generation);

  absl::StatusOr<BlockInfo> Allocate(std::string_view client, std::string_view lease, int64_t bytes,
                                     Instant now);
  // Keeps the memory as long as it is held.
  absl::StatusOr<std::shared_ptr<const ClientBlock>> Find(std::string_view client,
                                                          std::string_view block);
  absl::Status Free(std::string_view client, std::string_view block);
  absl::StatusOr<std::vector<BlockInfo>> List(std::string_view client,
                                              std::string_view lease) const;
  // The lease has ended.
  void FreeLease(LeaseNumber lease) { blocks_.RemoveLease(lease); }

  int64_t count() const { return blocks_.size(); }

 private:
  Pool& pool_;
  Reclaimer& reclaimer_;
  Leases& leases_;
  ByteBudget& held_;  // by blocks whose memory is not back yet, named or not
  HandleTable<std::shared_ptr<const ClientBlock>> blocks_;
};

}  // namespace tetrad
