// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_cache.h"

#include <new>
#include <utility>
#include <vector>

namespace tetrad {

PlanCache::PlanCache(Limits limits, Builder build) : limits_(limits), build_(std::move(build)) {}

bool PlanCache::OverLimits() const {
  return static_cast<int64_t>(by_use_.size()) > limits_.plans || host_bytes_ > limits_.host_bytes;
}

// Waiters must hear of every end, so not even an exception may pass by.
absl::StatusOr<std::shared_ptr<PlanEntry>> PlanCache::Build(const Signature& canonical) const {
  try {
    return build_(canonical);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("plan: the host memory to build it is lacking");
  }
}

absl::StatusOr<PlanCache::Found> PlanCache::Get(const Signature& canonical) {
  std::vector<std::shared_ptr<PlanEntry>> evicted;  // destroyed after the lock is gone
  std::unique_lock lock(mutex_);
  if (const auto at = slots_.find(canonical); at != slots_.end()) {
    const std::shared_ptr<Slot> slot = at->second;
    ++stats_.hits;
    if (!slot->done) {
      built_.wait(lock, [&] { return slot->done; });
    } else {
      by_use_.splice(by_use_.end(), by_use_, slot->use);
    }
    if (slot->entry == nullptr) return slot->failure;
    return Found{slot->entry, true};
  }

  const auto [at, inserted] = slots_.emplace(canonical, std::make_shared<Slot>());
  const std::shared_ptr<Slot> slot = at->second;
  const Signature* const key = &at->first;  // nodes do not move
  ++stats_.misses;
  lock.unlock();
  auto built = Build(canonical);
  lock.lock();
  slot->done = true;
  built_.notify_all();
  if (!built.ok()) {
    slot->failure = built.status();
    slots_.erase(*key);
    return slot->failure;
  }
  slot->entry = *std::move(built);
  slot->use = by_use_.insert(by_use_.end(), key);
  host_bytes_ += slot->entry->plan().host_bytes();
  while (by_use_.size() > 1 && OverLimits()) {
    const auto oldest = slots_.find(*by_use_.front());
    // A copy: threads that waited for it may still read the slot.
    evicted.push_back(oldest->second->entry);
    host_bytes_ -= evicted.back()->plan().host_bytes();
    by_use_.pop_front();
    slots_.erase(oldest);
    ++stats_.evictions;
  }
  return Found{slot->entry, false};
}

std::vector<std::shared_ptr<PlanEntry>> PlanCache::Entries() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PlanEntry>> entries;
  entries.reserve(by_use_.size());
  for (const Signature* key : by_use_) entries.push_back(slots_.find(*key)->second->entry);
  return entries;
}

PlanCache::Stats PlanCache::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.size = static_cast<int64_t>(by_use_.size());
  return stats;
}

}  // namespace tetrad
