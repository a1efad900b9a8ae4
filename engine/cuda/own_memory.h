// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// OwnMemory: device memory that a device needs itself, for tables of plans,
// states of launches and scratch; carved out of chunks, cleared, and bounded
// apart from the memory that clients are given.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

#include "engine/cuda/cuda_memory.h"
#include "engine/pool.h"

namespace tetrad::cuda {

class OwnMemory;

// A range, given back when destroyed.
class OwnBlock {
 public:
  OwnBlock() = default;
  OwnBlock(OwnMemory* owner, const BlockRef& block, CUdeviceptr address)
      : owner_(owner), block_(block), address_(address) {}
  OwnBlock(OwnBlock&& other) noexcept { *this = std::move(other); }
  OwnBlock& operator=(OwnBlock&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(block_, other.block_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~OwnBlock();

  CUdeviceptr address() const { return address_; }
  int64_t bytes() const { return block_.bytes; }
  const BlockRef& block() const { return block_; }

 private:
  OwnMemory* owner_ = nullptr;
  BlockRef block_;
  CUdeviceptr address_ = 0;
};

class OwnMemory {
 public:
  static constexpr int64_t kChunkBytes = 8 << 20;

  OwnMemory(CudaContext& context, Transfers& transfers, int64_t limit_bytes, int64_t granule)
      : context_(context),
        memory_(context, transfers, limit_bytes, granule),
        pool_({.allocate = [this](int64_t bytes) { return memory_.Allocate(bytes); },
               .free = [this](AllocationId id) { return memory_.Free(id); },
               .clear = [this](AllocationId id, int64_t offset,
                               int64_t bytes) { return memory_.Clear(id, offset, bytes); }},
              {.chunk_bytes = RoundUp(kChunkBytes, granule), .limit_bytes = limit_bytes}) {}

  // Of a lost device nothing is given back: the process ends.
  ~OwnMemory() {
    if (!context_.health().ok()) pool_.Abandon();
  }

  // Zeroed, at a multiple of 256 bytes. Bytes of 0 give a block without address.
  absl::StatusOr<OwnBlock> Allocate(int64_t bytes) {
    if (bytes == 0) return OwnBlock();
    TETRAD_ASSIGN_OR_RETURN(const BlockRef block, pool_.Allocate(bytes));
    const auto address = memory_.table().Pin(block, false);
    if (!address.ok()) {
      pool_.Free(block);
      return address.status();
    }
    memory_.table().Unpin(block.allocation, false);
    return OwnBlock(this, block, *address);
  }
  void Free(const BlockRef& block) {
    // Of a lost device nothing is used again.
    if (!context_.health().ok()) pool_.Abandon();
    pool_.Free(block);
  }
  absl::Status Write(const OwnBlock& block, int64_t offset, std::span<const std::byte> data) {
    return memory_.Write(block.block().allocation, block.block().offset + offset, data);
  }
  absl::Status Read(const OwnBlock& block, int64_t offset, std::span<std::byte> data) {
    return memory_.Read(block.block().allocation, block.block().offset + offset, data);
  }
  // What nothing uses goes back to the driver; how many bytes.
  int64_t Trim() { return pool_.Trim(); }
  int64_t bytes() const { return memory_.use().allocated_bytes; }

 private:
  CudaContext& context_;
  CudaMemory memory_;
  Pool pool_;
};

inline OwnBlock::~OwnBlock() {
  if (owner_ != nullptr) owner_->Free(block_);
}

}  // namespace tetrad::cuda
