// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanCache: at most one plan per signature, built once.
//
// Building lays out a schedule and, on a GPU, encodes tensor maps and captures
// graphs: milliseconds; launching takes microseconds. The cache keeps the two
// apart. The key is the whole signature; the hash only selects a bucket. What
// was handed out stays valid while it is held, even after eviction.
//
// It is bounded by number and by host bytes: how large a plan is, is the
// client's choice.
//
// Thread-safe. Get() blocks while another thread builds the same plan. A
// failed build is reported to everyone who waits for it and not remembered.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "engine/signature.h"
#include "engine/staging.h"

namespace tetrad {

class PlanCache {
 public:
  // Called without any lock of the cache held, for one thread per signature.
  using Builder = absl::AnyInvocable<absl::StatusOr<std::shared_ptr<PlanEntry>>(
      const Signature& canonical) const>;

  struct Found {
    std::shared_ptr<PlanEntry> entry;
    bool cached = false;  // it was there, or another thread just built it
  };
  struct Stats {
    int64_t size = 0, hits = 0, misses = 0, evictions = 0;
  };

  // The newest plan is kept whatever the limits.
  struct Limits {
    int64_t plans = 512;
    int64_t host_bytes = int64_t{1} << 30;
  };
  PlanCache(Limits limits, Builder build);

  // The plan for a canonical signature, built now if need be.
  absl::StatusOr<Found> Get(const Signature& canonical);
  // Every plan, least recently used first.
  std::vector<std::shared_ptr<PlanEntry>> Entries() const;
  Stats stats() const;

 private:
  struct Slot {
    absl::Status failure;
    std::shared_ptr<PlanEntry> entry;  // null while it is being built, and if that failed
    bool done = false;
    std::list<const Signature*>::iterator use;  // where in by_use_, once built
  };
  absl::StatusOr<std::shared_ptr<PlanEntry>> Build(const Signature& canonical) const;
  bool OverLimits() const;  // needs mutex_

  const Limits limits_;
  const Builder build_;
  mutable std::mutex mutex_;
  std::condition_variable built_;
  absl::node_hash_map<Signature, std::shared_ptr<Slot>> slots_;  // guarded by mutex_
  std::list<const Signature*>
      by_use_;              // keys of built plans, least recent first; guarded by mutex_
  int64_t host_bytes_ = 0;  // of built plans; guarded by mutex_
  Stats stats_;             // guarded by mutex_
};

}  // namespace tetrad
