// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanCache: at most one plan per signature, built once; as a step function.
//
// Building chooses a kernel and lays out its tiles, and what a device does once a plan
// (tables, a replay proof) hangs on it: milliseconds; launching takes microseconds.
// The cache keeps the two apart. The key is the whole signature; the hash only
// selects a bucket. What was handed out stays valid while it is held, even after
// eviction.
//
// Nobody builds and nobody waits in here: Begin() tells who asks that the plan
// is there, that it is his to build, or that he will be told; Finish() brings
// what was built and tells those who wait. plan_source.h adds the building and
// the waiting. A failed build is reported to everyone who waits for it and not
// remembered.
//
// It is bounded by number and by host bytes: how large a plan is, is the
// client's choice. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"

#include "engine/signature.h"
#include "engine/staging.h"

namespace tetrad {

// A canonical signature with its hash; cheap to copy.
class PlanKey {
 public:
  explicit PlanKey(Signature canonical)
      : signature_(std::make_shared<const Signature>(std::move(canonical))),
        hash_(absl::Hash<Signature>()(*signature_)) {}
  const Signature& signature() const { return *signature_; }

  bool operator==(const PlanKey& other) const {
    return signature_ == other.signature_ ||
           (hash_ == other.hash_ && *signature_ == *other.signature_);
  }
  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& key) {
    return H::combine(std::move(h), key.hash_);
  }

 private:
  std::shared_ptr<const Signature> signature_;
  size_t hash_;
};

class PlanCache {
 public:
  struct Found {
    std::shared_ptr<PlanEntry> entry;
    bool cached = false;  // it was there, or another built it
  };
  // Who asks for a plan. `result` is set when Begin() says kReady, or later,
  // and then `ready` is called, without locks, from Finish().
  struct Asker {
    absl::StatusOr<Found> result = absl::UnknownError("not ready");
    void (*ready)(Asker*) = nullptr;

   private:
    friend class PlanCache;
    Asker* next_ = nullptr;
  };
  enum class Turn { kReady, kBuild, kWait };

  // The newest plan is kept whatever the limits.
  struct Limits {
    int64_t plans = 512;
    int64_t host_bytes = int64_t{1} << 30;
  };
  explicit PlanCache(Limits limits);

  // kWait: `asker` must stay valid until it was told. kBuild: he must call
  // Finish() once, whatever happens.
  Turn Begin(const PlanKey& key, Asker& asker);
  // What the builder of `key` brings. Allocates nothing.
  absl::StatusOr<Found> Finish(const PlanKey& key,
                               absl::StatusOr<std::shared_ptr<PlanEntry>> built);

  // Whether it is there, built. Counts as no use.
  bool Holds(const PlanKey& key) const;

  // Every plan, least recently used first.
  std::vector<std::shared_ptr<PlanEntry>> Entries() const;
  struct Stats {
    int64_t size = 0, hits = 0, misses = 0, evictions = 0;
  };
  Stats stats() const;

 private:
  // Made when building begins, so that Finish() has only to move it.
  struct Use {
    PlanKey key;
    std::shared_ptr<PlanEntry> entry;
  };
  struct Slot {
    std::list<Use>::iterator use;  // in by_use_ once built, else in building_
    bool built = false;
    Asker* waiting = nullptr;
  };
  bool OverLimits() const;  // needs mutex_

  const Limits limits_;
  mutable std::mutex mutex_;  // guards all below
  // Not one of Abseil: those do not survive a node that could not be allocated.
  std::unordered_map<PlanKey, Slot, absl::Hash<PlanKey>> slots_;
  std::list<Use> by_use_;  // built plans, least recent first
  std::list<Use> building_;
  int64_t host_bytes_ = 0;  // of built plans
  Stats stats_;
};

}  // namespace tetrad
