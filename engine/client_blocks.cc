// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/client_blocks.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

HandleTable<std::shared_ptr<const ClientBlock>>::Limits TableLimits(const LeaseLimits& limits,
                                                                    int64_t device_bytes) {
  return {.client_entries = {"blocks of one client", limits.client_blocks},
          .client_bytes = {"client_block_bytes", limits.client_block_bytes > 0
                                                     ? limits.client_block_bytes
                                                     : device_bytes / 2}};
}

}  // namespace

ClientBlock::ClientBlock(Pool& pool, ByteBudget& held, std::string_view lease, int64_t bytes,
                         BlockRef memory)
    : pool_(pool), held_(held), lease_(lease), bytes_(bytes), memory_(memory) {
  TETRAD_CHECK(held_.Take(bytes_));
}

ClientBlock::~ClientBlock() {
  pool_.Free(memory_);
  held_.Give(bytes_);
}

absl::StatusOr<BlockRef> ClientBlock::Range(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > bytes_ || bytes > bytes_ - offset) {
    return FieldError({"bytes", absl::StrCat(bytes, " at offset ", offset),
                       absl::StrCat("at most ", bytes_, " with the offset")},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("block: ", bytes, " bytes at offset ", offset,
                                   " exceed the block's ", bytes_, " bytes"));
  }
  return BlockRef{memory_.allocation, memory_.offset + offset, bytes};
}

ClientBlocks::ClientBlocks(int64_t device_bytes, Pool& pool, Reclaimer& reclaimer, Leases& leases,
                           ByteBudget& held, const LeaseLimits& limits, uint64_t generation)
    : pool_(pool),
      reclaimer_(reclaimer),
      leases_(leases),
      held_(held),
      blocks_(HandleNames("block", generation, "allocate again"),
              TableLimits(limits, device_bytes)) {}

absl::StatusOr<BlockInfo> ClientBlocks::Allocate(std::string_view client, std::string_view lease,
                                                 int64_t bytes, Instant now) {
  TETRAD_ASSIGN_OR_RETURN(const LeaseNumber number, leases_.Find(client, lease));
  if (bytes < 1) {
    return FieldError({"bytes", absl::StrCat(bytes), "at least 1"}, Reason::kFieldOutOfRange,
                      absl::StrCat("bytes=", bytes, " must be at least 1"));
  }
  TETRAD_RETURN_IF_ERROR(blocks_.Admissible(client, bytes));
  TETRAD_ASSIGN_OR_RETURN(const BlockRef memory, pool_.Allocate(bytes));
  absl::Cleanup free = [&] { pool_.Free(memory); };
  auto block = std::make_unique<ClientBlock>(pool_, held_, lease, bytes, memory);
  std::move(free).Cancel();
  BlockInfo info{.block = {}, .lease = std::string(lease), .bytes = bytes};
  TETRAD_ASSIGN_OR_RETURN(
      info.block, blocks_.Add({client, number}, bytes, reclaimer_.Own(std::move(block)), now));
  // If the lease ended meanwhile, its end may have come too early to see this.
  if (!leases_.Lives(number)) {
    blocks_.RemoveLease(number);
    return leases_.Find(client, lease).status();
  }
  return info;
}

absl::StatusOr<std::shared_ptr<const ClientBlock>> ClientBlocks::Find(std::string_view client,
                                                                      std::string_view block) {
  return blocks_.Find(client, block, 0);
}

absl::Status ClientBlocks::Free(std::string_view client, std::string_view block) {
  return blocks_.Remove(client, block).status();
}

absl::StatusOr<std::vector<BlockInfo>> ClientBlocks::List(std::string_view client,
                                                          std::string_view lease) const {
  TETRAD_ASSIGN_OR_RETURN(const LeaseNumber number, leases_.Find(client, lease));
  std::vector<BlockInfo> list;
  for (auto& [name, block] : blocks_.List(number)) {
    list.push_back({std::move(name), block->lease(), block->bytes()});
  }
  return list;
}

}  // namespace tetrad
