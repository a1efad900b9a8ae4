// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pool.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

using Op = AllocationEvent::Op;
using Kind = AllocationEvent::Kind;

constexpr int64_t kGranule = FreeRanges::kGranuleBytes;

int64_t RoundToGranule(int64_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

// What blocks can use of a shared chunk.
int64_t UsableBytes(const Allocation& chunk) { return chunk.bytes / kGranule * kGranule; }

absl::Status CheckBytes(int64_t bytes, int64_t limit) {
  if (bytes < 1) {
    return FieldError({"bytes", absl::StrCat(bytes), "at least 1"}, Reason::kFieldOutOfRange,
                      absl::StrCat("bytes=", bytes, " must be at least 1"));
  }
  // Nothing that gives way would make room for it.
  if (bytes > limit) {
    return FieldError({"bytes", absl::StrCat(bytes), absl::StrCat("at most ", limit)},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("bytes=", bytes, ", the device has ", limit, " in all"));
  }
  return absl::OkStatus();
}

}  // namespace

Pool::Upstream Pool::From(Device& device) {
  return {[&device](int64_t bytes) { return device.Allocate(bytes); },
          [&device](AllocationId id) { return device.Free(id); },
          [&device](AllocationId id, int64_t offset, int64_t bytes) {
            return device.Clear(id, offset, bytes);
          }};
}

Pool::Pool(Upstream upstream, Options options)
    : upstream_(std::move(upstream)), options_(std::move(options)) {
  TETRAD_CHECK(upstream_.allocate && upstream_.free && upstream_.clear);
  TETRAD_CHECK(options_.chunk_bytes >= kGranule && options_.chunk_bytes % kGranule == 0);
}

Pool::~Pool() {
  TETRAD_CHECK(blocks_.empty() && wholes_.empty());
  Trim();
}

absl::StatusOr<BlockRef> Pool::Allocate(int64_t bytes) {
  if (absl::Status status = CheckBytes(bytes, options_.limit_bytes); !status.ok()) {
    ++failures_;
    return status;
  }
  const uint64_t number = ++last_number_;
  absl::StatusOr<Taken> taken = Insist(bytes, [&] {
    return bytes > options_.chunk_bytes / 2 ? TakeOwnChunk(bytes, number) : Carve(bytes, number);
  });
  absl::Status status = taken.status();
  if (status.ok() && taken->dirty_bytes > 0) {
    status = upstream_.clear(taken->block.allocation, taken->block.offset, taken->dirty_bytes);
    std::optional<Allocation> leaving;
    if (!status.ok()) Release(taken->block, &leaving);
    if (leaving) GiveBack(*leaving);
  }
  ++(status.ok() ? allocations_ : failures_);
  Record(Op::kAllocate, Kind::kBlock, number, bytes, status.code());
  if (!status.ok()) return status;
  return taken->block;
}

void Pool::Free(const BlockRef& block) {
  std::optional<Allocation> leaving;
  const Block freed = Release(block, &leaving);
  ++frees_;
  Record(Op::kFree, Kind::kBlock, freed.number, freed.bytes, absl::StatusCode::kOk);
  if (leaving) GiveBack(*leaving);
}

absl::StatusOr<Allocation> Pool::AllocateWhole(int64_t bytes) {
  if (absl::Status status = CheckBytes(bytes, options_.limit_bytes); !status.ok()) {
    ++failures_;
    return status;
  }
  const uint64_t number = ++last_number_;
  absl::StatusOr<Allocation> allocation = Insist(bytes, [&] { return upstream_.allocate(bytes); });
  if (allocation.ok()) {
    TETRAD_CHECK(allocation->bytes >= bytes);
    absl::Cleanup give_back = [&] { upstream_.free(allocation->id).IgnoreError(); };
    std::lock_guard lock(mutex_);
    TETRAD_CHECK(wholes_.try_emplace(allocation->id, Whole{*allocation, bytes, number}).second);
    std::move(give_back).Cancel();
    reserved_bytes_ += allocation->bytes;
    whole_bytes_ += allocation->bytes;
  }
  ++(allocation.ok() ? allocations_ : failures_);
  Record(Op::kAllocate, Kind::kWhole, number, bytes, allocation.status().code());
  return allocation;
}

void Pool::FreeWhole(AllocationId id) {
  Whole whole;
  {
    std::lock_guard lock(mutex_);
    const auto found = wholes_.find(id);
    TETRAD_CHECK(found != wholes_.end());
    whole = found->second;
    wholes_.erase(found);
    whole_bytes_ -= whole.allocation.bytes;
    ++returning_;
  }
  ++frees_;
  Record(Op::kFree, Kind::kWhole, whole.number, whole.bytes, absl::StatusCode::kOk);
  GiveBack(whole.allocation);
}

int64_t Pool::Trim() {
  std::optional<Allocation> empty;
  {
    std::lock_guard lock(mutex_);
    if (empty_) {
      const uint64_t chunk = *std::exchange(empty_, std::nullopt);
      free_.Remove({chunk, 0, UsableBytes(chunks_.at(chunk).allocation)});
      empty = Detach(chunk);
      ++returning_;
    }
  }
  return (empty ? GiveBack(*empty) : 0) + ReturnAgain();
}

std::vector<AllocationId> Pool::Unreturned() const {
  std::vector<AllocationId> ids;
  std::lock_guard lock(mutex_);
  for (const Allocation& allocation : unreturned_) ids.push_back(allocation.id);
  return ids;
}

int64_t Pool::ReturnAgain() {
  std::vector<Allocation> leaving;
  {
    std::lock_guard lock(mutex_);
    leaving.swap(unreturned_);
    returning_ += static_cast<int64_t>(leaving.size());
  }
  int64_t bytes = 0;
  for (const Allocation& allocation : leaving) bytes += GiveBack(allocation);
  return bytes;
}

Pool::Stats Pool::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats;
  stats.reserved_bytes = reserved_bytes_;
  stats.block_bytes = block_bytes_;
  stats.asked_bytes = asked_bytes_;
  stats.whole_bytes = whole_bytes_;
  stats.free_bytes = free_.bytes();
  stats.largest_free_bytes = free_.largest_bytes();
  for (const Allocation& allocation : unreturned_) stats.unreturned_bytes += allocation.bytes;
  stats.chunks = static_cast<int64_t>(chunks_.size());
  stats.blocks = static_cast<int64_t>(blocks_.size());
  stats.wholes = static_cast<int64_t>(wholes_.size());
  stats.allocations = allocations_;
  stats.frees = frees_;
  stats.failures = failures_;
  return stats;
}

template <class Attempt>
auto Pool::Insist(int64_t bytes, const Attempt& attempt) -> decltype(attempt()) {
  while (true) {
    if (abandoned()) {
      return ReasonError(Reason::kDeviceLost, "the device was lost, the daemon restarts");
    }
    const uint64_t before = returned_;
    auto result = attempt();
    if (!absl::IsResourceExhausted(result.status())) return result;
    // Memory that other threads give back is neither here nor there for a moment.
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return returning_ == 0 || returned_ != before; });
    }
    if (returned_ != before || Trim() > 0) continue;
    if (!options_.relieve || !options_.relieve(bytes)) return Exhausted(bytes, result.status());
  }
}

absl::StatusOr<Pool::Taken> Pool::Carve(int64_t bytes, uint64_t number) {
  const int64_t rounded = RoundToGranule(bytes);
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto range = free_.Take(rounded)) return HandOutFree({*range, bytes, number});
    if (!fetching_) break;
    changed_.wait(lock, [this] { return !fetching_; });
  }
  fetching_ = true;
  lock.unlock();
  absl::StatusOr<Allocation> chunk = [&] {
    absl::Cleanup fetched = [&] {
      lock.lock();
      fetching_ = false;
      changed_.notify_all();
    };
    return FetchChunk(rounded);
  }();
  if (!chunk.ok()) {
    // Somebody may have freed a block meanwhile.
    const auto range = free_.Take(rounded);
    if (!range) return chunk.status();
    return HandOutFree({*range, bytes, number});
  }
  // The block comes out of the new chunk even if a better place became free
  // meanwhile, so that a chunk is never new and empty.
  return HandOutNew(*chunk, /*shared=*/true, {{0, 0, rounded}, bytes, number});
}

// The host may lack memory for the books: then it is as if nothing was asked for.
Pool::Taken Pool::HandOutFree(const Block& block) {
  absl::Cleanup put_back = [&] { free_.Give(block.range); };
  const Taken taken = HandOut(block);
  std::move(put_back).Cancel();
  if (empty_ == block.range.chunk) empty_.reset();
  return taken;
}

Pool::Taken Pool::HandOutNew(const Allocation& allocation, bool shared, Block block) {
  block.range.chunk = ++last_chunk_;
  absl::Cleanup give_back = [&] {
    chunks_.erase(block.range.chunk);
    upstream_.free(allocation.id).IgnoreError();
  };
  chunks_[block.range.chunk] = {allocation, shared};
  const int64_t rest = shared ? UsableBytes(allocation) - block.range.bytes : 0;
  const FreeRanges::Range beyond{block.range.chunk, block.range.bytes, rest};
  if (rest > 0) free_.Give(beyond);
  absl::Cleanup take_back = [&] {
    if (rest > 0) free_.Remove(beyond);
  };
  const Taken taken = HandOut(block);
  std::move(take_back).Cancel();
  std::move(give_back).Cancel();
  reserved_bytes_ += allocation.bytes;
  return taken;
}

absl::StatusOr<Allocation> Pool::FetchChunk(int64_t rounded_bytes) {
  // The last memory of a device may be less than a chunk and still enough.
  const int64_t eighth = std::max(RoundToGranule(options_.chunk_bytes / 8), rounded_bytes);
  absl::StatusOr<Allocation> chunk = upstream_.allocate(options_.chunk_bytes);
  int64_t wanted_bytes = options_.chunk_bytes;
  for (const int64_t smaller : {eighth, rounded_bytes}) {
    if (!absl::IsResourceExhausted(chunk.status()) || smaller == wanted_bytes) break;
    chunk = upstream_.allocate(smaller);
    wanted_bytes = smaller;
  }
  TETRAD_CHECK(!chunk.ok() || chunk->bytes >= wanted_bytes);
  return chunk;
}

absl::StatusOr<Pool::Taken> Pool::TakeOwnChunk(int64_t bytes, uint64_t number) {
  TETRAD_ASSIGN_OR_RETURN(const Allocation chunk, upstream_.allocate(bytes));
  TETRAD_CHECK(chunk.bytes >= bytes);
  std::lock_guard lock(mutex_);
  return HandOutNew(chunk, /*shared=*/false, {{0, 0, chunk.bytes}, bytes, number});
}

Pool::Taken Pool::HandOut(const Block& block) {
  const FreeRanges::Range& range = block.range;
  Chunk& chunk = chunks_.at(range.chunk);
  const AllocationId allocation = chunk.allocation.id;
  free_.Spare(blocks_.size() + 1);  // giving blocks back cannot fail
  TETRAD_CHECK(blocks_.try_emplace(Place{allocation, range.offset}, block).second);
  block_bytes_ += range.bytes;
  asked_bytes_ += block.bytes;
  const int64_t dirty = std::clamp<int64_t>(chunk.used_bytes - range.offset, 0, range.bytes);
  chunk.used_bytes = std::max(chunk.used_bytes, range.offset + range.bytes);
  return {{allocation, range.offset, block.bytes}, dirty};
}

Pool::Block Pool::Release(const BlockRef& ref, std::optional<Allocation>* leaving) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(Place{ref.allocation, ref.offset});
  TETRAD_CHECK(found != blocks_.end() && found->second.bytes == ref.bytes);
  const Block block = found->second;
  blocks_.erase(found);
  block_bytes_ -= block.range.bytes;
  asked_bytes_ -= block.bytes;
  *leaving = PutBack(block.range);
  if (*leaving) ++returning_;
  return block;
}

std::optional<Allocation> Pool::PutBack(const FreeRanges::Range& range) {
  const Chunk& chunk = chunks_.at(range.chunk);
  if (!chunk.shared) return Detach(range.chunk);
  const FreeRanges::Range merged = free_.Give(range);
  if (merged.bytes < UsableBytes(chunk.allocation)) return std::nullopt;
  // A smaller one, taken when memory was short, is not worth keeping.
  if (!empty_ && chunk.allocation.bytes >= options_.chunk_bytes) {
    empty_ = range.chunk;
    return std::nullopt;
  }
  free_.Remove(merged);
  return Detach(range.chunk);
}

Allocation Pool::Detach(uint64_t chunk) {
  const auto found = chunks_.find(chunk);
  const Allocation allocation = found->second.allocation;
  chunks_.erase(found);
  return allocation;
}

int64_t Pool::GiveBack(const Allocation& allocation) {
  const bool taken = abandoned() || upstream_.free(allocation.id).ok();
  std::lock_guard lock(mutex_);
  --returning_;
  if (taken) {
    ++returned_;
    reserved_bytes_ -= allocation.bytes;
  } else {
    unreturned_.push_back(allocation);
  }
  changed_.notify_all();
  return taken ? allocation.bytes : 0;
}

void Pool::Record(Op op, Kind kind, uint64_t number, int64_t bytes, absl::StatusCode outcome) {
  if (options_.log == nullptr) return;
  options_.log->Record(
      {.op = op, .kind = kind, .number = number, .bytes = bytes, .outcome = outcome});
}

absl::Status Pool::Exhausted(int64_t bytes, const absl::Status& upstream) const {
  const Stats now = stats();
  return ReasonError(Reason::kDeviceMemory,
                     absl::StrCat("pool: ", bytes, " bytes wanted, ", now.free_bytes, " of ",
                                  now.reserved_bytes, " held are free, the largest free range is ",
                                  now.largest_free_bytes, "; ", upstream.message()));
}

}  // namespace tetrad
