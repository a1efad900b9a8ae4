// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SimulatedUpstream: a device's memory for tests and benchmarks of the pool. It
// keeps the books as a device does, with a limit and a granule, holds real bytes
// if asked to, and fails where its owner says so.
//
// Thread-safe; `fault` is called with its lock held and outlives it. Ids are
// never reused. Misuse by the pool (freeing twice, clearing beyond the end) ends
// the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "engine/pool.h"
#include "engine/support/status_macros.h"

namespace tetrad {

class SimulatedUpstream {
 public:
  enum class Call { kAllocate, kFree, kClear };
  struct Options {
    int64_t limit_bytes = INT64_MAX;
    int64_t granule_bytes = 4096;
    bool holds_bytes = false;
    std::function<absl::Status(Call)> fault;  // asked first at every call
  };
  struct Stats {
    int64_t bytes = 0, peak_bytes = 0, allocations = 0;           // now
    int64_t allocate_calls = 0, free_calls = 0, clear_calls = 0;  // since the start
    int64_t cleared_bytes = 0;
  };
  explicit SimulatedUpstream(Options options) : options_(std::move(options)) {}

  Pool::Upstream upstream() {
    return {[this](int64_t bytes) { return Allocate(bytes); },
            [this](AllocationId id) { return Free(id); },
            [this](AllocationId id, int64_t offset, int64_t bytes) {
              return Clear(id, offset, bytes);
            }};
  }

  absl::StatusOr<Allocation> Allocate(int64_t bytes) {
    std::lock_guard lock(mutex_);
    ++stats_.allocate_calls;
    TETRAD_RETURN_IF_ERROR(Fault(Call::kAllocate));
    const int64_t granule = options_.granule_bytes;
    if (bytes > options_.limit_bytes - stats_.bytes) return Refusal(bytes);
    const int64_t rounded = (bytes - 1) / granule * granule + granule;
    if (rounded > options_.limit_bytes - stats_.bytes) return Refusal(bytes);
    Held held{rounded, nullptr};
    if (options_.holds_bytes) held.data = std::make_unique<std::byte[]>(rounded);
    const auto id = static_cast<AllocationId>(++last_id_);
    held_.emplace(id, std::move(held));
    stats_.bytes += rounded;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes);
    ++stats_.allocations;
    return Allocation{id, {}, rounded};
  }

  absl::Status Free(AllocationId id) {
    std::lock_guard lock(mutex_);
    ++stats_.free_calls;
    const auto found = held_.find(id);
    TETRAD_CHECK(found != held_.end());
    TETRAD_RETURN_IF_ERROR(Fault(Call::kFree));
    stats_.bytes -= found->second.bytes;
    --stats_.allocations;
    held_.erase(found);
    return absl::OkStatus();
  }

  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) {
    std::byte* data;
    {
      std::lock_guard lock(mutex_);
      ++stats_.clear_calls;
      const auto found = held_.find(id);
      TETRAD_CHECK(found != held_.end());
      TETRAD_CHECK(offset >= 0 && bytes > 0 && bytes <= found->second.bytes - offset);
      TETRAD_RETURN_IF_ERROR(Fault(Call::kClear));
      stats_.cleared_bytes += bytes;
      data = found->second.data.get();
    }
    // Outside the lock, so that a sanitizer sees who else touches these bytes.
    if (data != nullptr) std::fill_n(data + offset, bytes, std::byte{0});
    return absl::OkStatus();
  }

  // The bytes of a block; it must be in a live allocation.
  std::byte* data(AllocationId id, int64_t offset) {
    std::lock_guard lock(mutex_);
    return held_.at(id).data.get() + offset;
  }
  Stats stats() const {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Held {
    int64_t bytes;
    std::unique_ptr<std::byte[]> data;
  };
  absl::Status Fault(Call call) const {
    return options_.fault ? options_.fault(call) : absl::OkStatus();
  }
  absl::Status Refusal(int64_t bytes) const {
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes, " bytes wanted, ",
                                                     options_.limit_bytes - stats_.bytes, " of ",
                                                     options_.limit_bytes, " left"));
  }

  const Options options_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<AllocationId, Held> held_;  // guarded by mutex_
  uint64_t last_id_ = 0;                          // guarded by mutex_
  Stats stats_;                                   // guarded by mutex_
};

}  // namespace tetrad
