// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pool: device memory by the block.
//
// The device hands out whole allocations, slowly and in coarse sizes. The pool
// carves its blocks out of chunks taken from there, and hands out allocations of
// their own where memory is to be exported; such a one is never given to anybody
// else. All memory is zero when handed out: what a block used before is cleared
// before its next use, what was never used since the device gave it is not.
//
// A request above half a chunk gets a chunk of just its size, given back when
// freed: two of them never fit one chunk, so a shared chunk would only add its
// rest. Of empty chunks one is kept, so that a block freed and wanted again at
// a chunk's border costs no call to the device; others go back at once.
//
// Thread-safe. No lock is held while the device works or memory is cleared; one
// thread at a time fetches a shared chunk, others that need one wait for it. A
// request fails with RESOURCE_EXHAUSTED only if the device had nothing left once
// all that was on its way back to it had arrived, the pool's own empty chunk
// included, and `relieve` found nothing either. Freeing what is not handed out
// is a bug of the caller and ends the program.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/allocation_log.h"
#include "engine/device.h"
#include "engine/free_ranges.h"

namespace tetrad {

class Pool {
 public:
  // Where memory comes from: a Device in the daemon, a simulated one in tests and
  // benchmarks. Thread-safe; never calls the pool.
  struct Upstream {
    std::function<absl::StatusOr<Allocation>(int64_t bytes)> allocate;  // zeroed; may round up
    std::function<absl::Status(AllocationId)> free;
    std::function<absl::Status(AllocationId, int64_t offset, int64_t bytes)> clear;
  };
  static Upstream From(Device& device);

  struct Options {
    int64_t chunk_bytes = int64_t{32} << 20;  // a multiple of the granule
    int64_t limit_bytes = INT64_MAX;          // what upstream could ever give
    AllocationLog* log = nullptr;             // gets every event when set; this pool's alone
    // Called without locks when the device is out of memory. True: something may
    // have become free, try again; so each true must have been worth it.
    std::function<bool(int64_t bytes)> relieve;
  };
  Pool(Upstream upstream, Options options);
  ~Pool();  // nothing handed out may be left
  Pool(const Pool&) = delete;

  // Zeroed memory that starts at a multiple of FreeRanges::kGranuleBytes of its
  // allocation; never exported.
  absl::StatusOr<BlockRef> Allocate(int64_t bytes);
  void Free(const BlockRef& block);

  // Zeroed memory that is an allocation of its own: the unit of export.
  absl::StatusOr<Allocation> AllocateWhole(int64_t bytes);
  void FreeWhole(AllocationId id);

  // Gives the empty chunk back, and what the device refused to take before;
  // returns the bytes it took.
  int64_t Trim();
  // What the device refused to take back, because something is bound to it, and
  // giving that back again.
  std::vector<AllocationId> Unreturned() const;
  int64_t ReturnAgain();

  // The device is lost: it is not called any more, nothing is handed out
  // (UNAVAILABLE), and what is freed is only struck off the books.
  void Abandon() { abandoned_.store(true); }
  bool abandoned() const { return abandoned_.load(); }

  struct Stats {
    int64_t reserved_bytes = 0;      // taken from upstream
    int64_t block_bytes = 0;         // in blocks, as rounded up
    int64_t asked_bytes = 0;         // in blocks, as asked for
    int64_t whole_bytes = 0;         // in allocations of their own
    int64_t free_bytes = 0;          // free in chunks
    int64_t largest_free_bytes = 0;  // in one piece
    int64_t unreturned_bytes = 0;    // upstream refused to take them back
    int64_t chunks = 0, blocks = 0, wholes = 0;
    int64_t allocations = 0, frees = 0, failures = 0;  // since the start, blocks and wholes
  };
  Stats stats() const;

 private:
  struct Chunk {
    Allocation allocation;
    bool shared = false;     // false: one block that takes all of it
    int64_t used_bytes = 0;  // what lies beyond was never handed out and is zero
  };
  struct Block {
    FreeRanges::Range range;
    int64_t bytes = 0;  // as asked for
    uint64_t number = 0;
  };
  struct Whole {
    Allocation allocation;
    int64_t bytes = 0;  // as asked for
    uint64_t number = 0;
  };
  using Place = std::pair<AllocationId, int64_t>;  // where a block starts
  // A block handed out whose first bytes may hold what was there before.
  struct Taken {
    BlockRef block;
    int64_t dirty_bytes = 0;
  };

  // Calls `attempt` until it has another result than RESOURCE_EXHAUSTED or
  // nothing more can become free.
  template <class Attempt>
  auto Insist(int64_t bytes, const Attempt& attempt) -> decltype(attempt());
  // Out of free ranges, or of a new shared chunk.
  absl::StatusOr<Taken> Carve(int64_t bytes, uint64_t number);
  absl::StatusOr<Taken> TakeOwnChunk(int64_t bytes, uint64_t number);
  // A shared chunk, smaller than others where the device has no more.
  absl::StatusOr<Allocation> FetchChunk(int64_t rounded_bytes);
  // All need mutex_.
  Taken HandOut(const Block& block);
  Taken HandOutFree(const Block& block);  // its range was taken out of the free ones
  Taken HandOutNew(const Allocation& allocation, bool shared, Block block);
  // `leaving`: the chunk that the caller gives back now, if this emptied it.
  Block Release(const BlockRef& ref, std::optional<Allocation>* leaving);
  std::optional<Allocation> PutBack(const FreeRanges::Range& range);  // needs mutex_
  Allocation Detach(uint64_t chunk);                                  // needs mutex_
  int64_t GiveBack(const Allocation& allocation);  // returning_ counts it already
  void Record(AllocationEvent::Op op, AllocationEvent::Kind kind, uint64_t number, int64_t bytes,
              absl::StatusCode outcome);
  absl::Status Exhausted(int64_t bytes, const absl::Status& upstream) const;

  const Upstream upstream_;
  const Options options_;
  std::atomic<uint64_t> last_number_{0};  // of a request
  std::atomic<int64_t> allocations_{0}, frees_{0}, failures_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<uint64_t> returned_{0};  // allocations upstream took back; changed under mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // fetching_, returning_ or returned_
  bool fetching_ = false;            // a thread fetches a shared chunk; guarded by mutex_
  int64_t returning_ = 0;            // allocations on their way upstream; guarded by mutex_
  FreeRanges free_;                  // of shared chunks; guarded by mutex_
  uint64_t last_chunk_ = 0;          // guarded by mutex_
  std::unordered_map<uint64_t, Chunk> chunks_;      // guarded by mutex_
  std::optional<uint64_t> empty_;                   // the empty chunk kept; guarded by mutex_
  std::map<Place, Block> blocks_;                   // guarded by mutex_
  std::unordered_map<AllocationId, Whole> wholes_;  // guarded by mutex_
  std::vector<Allocation> unreturned_;              // guarded by mutex_
  int64_t reserved_bytes_ = 0;                      // guarded by mutex_
  int64_t block_bytes_ = 0;                         // guarded by mutex_
  int64_t asked_bytes_ = 0;                         // guarded by mutex_
  int64_t whole_bytes_ = 0;                         // guarded by mutex_
};

}  // namespace tetrad
