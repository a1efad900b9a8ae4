// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_cache.h"

#include "absl/cleanup/cleanup.h"

#include "engine/support/status_macros.h"

namespace tetrad {

PlanCache::PlanCache(Limits limits) : limits_(limits) {}

bool PlanCache::OverLimits() const {
  return static_cast<int64_t>(by_use_.size()) > limits_.plans || host_bytes_ > limits_.host_bytes;
}

PlanCache::Turn PlanCache::Begin(const PlanKey& key, Asker& asker) {
  std::lock_guard lock(mutex_);
  if (const auto at = slots_.find(key); at != slots_.end()) {
    Slot& slot = at->second;
    ++stats_.hits;
    if (!slot.built) {
      asker.next_ = std::exchange(slot.waiting, &asker);
      return Turn::kWait;
    }
    by_use_.splice(by_use_.end(), by_use_, slot.use);
    asker.result = Found{slot.use->entry, true};
    return Turn::kReady;
  }
  const auto use = building_.insert(building_.end(), Use{key, nullptr});
  absl::Cleanup undo = [&] { building_.erase(use); };  // emplace() may throw
  slots_.emplace(key, Slot{use});
  std::move(undo).Cancel();
  ++stats_.misses;
  return Turn::kBuild;
}

absl::StatusOr<PlanCache::Found> PlanCache::Finish(
    const PlanKey& key, absl::StatusOr<std::shared_ptr<PlanEntry>> built) {
  std::list<Use> evicted;  // destroyed after the lock is gone
  Asker* waiting = nullptr;
  absl::StatusOr<Found> others = Found{};
  if (built.ok()) {
    others->entry = *built;
    others->cached = true;
  } else {
    others = built.status();
  }
  {
    std::lock_guard lock(mutex_);
    const auto at = slots_.find(key);
    TETRAD_CHECK(at != slots_.end() && !at->second.built);
    Slot& slot = at->second;
    waiting = std::exchange(slot.waiting, nullptr);
    if (built.ok()) {
      slot.use->entry = *built;
      slot.built = true;
      by_use_.splice(by_use_.end(), building_, slot.use);
      host_bytes_ += (*built)->plan().host_bytes();
    } else {
      evicted.splice(evicted.end(), building_, slot.use);
      slots_.erase(at);
    }
    while (by_use_.size() > 1 && OverLimits()) {
      const auto oldest = by_use_.begin();
      host_bytes_ -= oldest->entry->plan().host_bytes();
      slots_.erase(oldest->key);
      evicted.splice(evicted.end(), by_use_, oldest);
      ++stats_.evictions;
    }
  }
  while (waiting != nullptr) {
    Asker* const asker = waiting;
    waiting = asker->next_;  // first: told, it may be gone
    asker->result = others;
    asker->ready(asker);
  }
  if (!built.ok()) return built.status();
  return Found{*std::move(built), false};
}

bool PlanCache::Holds(const PlanKey& key) const {
  std::lock_guard lock(mutex_);
  const auto at = slots_.find(key);
  return at != slots_.end() && at->second.built;
}

std::vector<std::shared_ptr<PlanEntry>> PlanCache::Entries() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PlanEntry>> entries;
  entries.reserve(by_use_.size());
  for (const Use& use : by_use_) entries.push_back(use.entry);
  return entries;
}

PlanCache::Stats PlanCache::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.size = static_cast<int64_t>(by_use_.size());
  return stats;
}

}  // namespace tetrad
