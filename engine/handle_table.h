// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// HandleTable: what clients hold of one kind (blocks, plan handles), by name.
//
// An entry belongs to a client and, unless its lease is kNone, to a lease with
// which it goes (RemoveLease). An entry without a lease goes when it was not
// used for the idle time (RemoveIdle). Bounded by number and bytes, over all
// and for each client: RESOURCE_EXHAUSTED names the limit.
//
// T is cheap to copy and to let go of under a lock: a shared pointer whose
// object a Reclaimer owns, or a small one. Thread-safe. Find() allocates
// nothing; an Add() that lacks memory throws and adds nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "engine/handle_name.h"
#include "engine/leases.h"
#include "engine/support/error_detail.h"
#include "engine/support/instant.h"
#include "engine/support/status_macros.h"

namespace tetrad {

template <typename T>
class HandleTable {
 public:
  struct Limit {
    const char* name = "";  // in messages
    int64_t value = INT64_MAX;
  };
  struct Limits {
    Limit entries, bytes;                // of all
    Limit client_entries, client_bytes;  // of one client
    int64_t idle_ns = kNever;
  };
  HandleTable(HandleNames names, const Limits& limits)
      : names_(std::move(names)), limits_(limits) {}

  struct Holder {
    std::string_view client;
    LeaseNumber lease = LeaseNumber::kNone;
  };
  // What Add() of so many bytes would say now.
  absl::Status Admissible(std::string_view client, int64_t bytes) const {
    std::lock_guard lock(mutex_);
    return AdmissibleLocked(client, bytes);
  }
  absl::StatusOr<std::string> Add(const Holder& holder, int64_t bytes, T value, Instant now) {
    Entry entry{std::string(holder.client),
                holder.lease,
                HandleNames::DrawSecret(),
                bytes,
                now,
                std::move(value),
                {},
                false};
    std::lock_guard lock(mutex_);
    TETRAD_RETURN_IF_ERROR(AdmissibleLocked(holder.client, bytes));
    const HandleNames::Parts parts{++last_, entry.secret};
    std::string name = names_.Make(parts);
    entries_.emplace(parts.number, std::move(entry));
    // Each step may throw for lack of memory; then nothing was added.
    absl::Cleanup undo = [&] { Unlink(parts.number); };
    Entry& added = entries_.find(parts.number)->second;
    if (added.lease == LeaseNumber::kNone) {
      added.place = by_use_.insert(by_use_.end(), parts.number);
      added.linked = true;
    } else {
      by_lease_[added.lease].insert(parts.number);
    }
    Use& use = clients_[added.client];
    std::move(undo).Cancel();
    ++use.entries;
    use.bytes += bytes;
    bytes_ += bytes;
    return name;
  }

  absl::StatusOr<T> Find(std::string_view client, std::string_view name, Instant now) {
    TETRAD_ASSIGN_OR_RETURN(const HandleNames::Parts parts, names_.Parse(name));
    std::lock_guard lock(mutex_);
    TETRAD_ASSIGN_OR_RETURN(Entry* const entry, FindLocked(client, parts));
    entry->used = now;
    if (entry->linked) by_use_.splice(by_use_.end(), by_use_, entry->place);
    return entry->value;
  }

  absl::StatusOr<T> Remove(std::string_view client, std::string_view name) {
    TETRAD_ASSIGN_OR_RETURN(const HandleNames::Parts parts, names_.Parse(name));
    std::lock_guard lock(mutex_);
    TETRAD_RETURN_IF_ERROR(FindLocked(client, parts).status());
    return Erase(parts.number);
  }

  // All that belongs to the lease, oldest first. Allocates nothing, and lets
  // others in between.
  void RemoveLease(LeaseNumber lease) {
    while (RemoveSomeOf(lease)) {
    }
  }

  // Removes what has no lease and was not used for the idle time; returns when
  // the next may go, kNever if there is none.
  Instant RemoveIdle(Instant now) {
    for (;;) {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < kAtOnce; ++i) {
        if (by_use_.empty()) return kNever;
        const uint64_t oldest = by_use_.front();
        const Instant due = After(entries_.find(oldest)->second.used, limits_.idle_ns);
        if (due > now) return due;
        Erase(oldest);
      }
    }
  }

  // Name and value of what the lease has, oldest first.
  std::vector<std::pair<std::string, T>> List(LeaseNumber lease) const {
    std::vector<std::pair<HandleNames::Parts, T>> found;
    {
      std::lock_guard lock(mutex_);
      const auto at = by_lease_.find(lease);
      if (at == by_lease_.end()) return {};
      found.reserve(at->second.size());
      for (const uint64_t number : at->second) {
        const Entry& entry = entries_.find(number)->second;
        found.emplace_back(HandleNames::Parts{number, entry.secret}, entry.value);
      }
    }
    std::vector<std::pair<std::string, T>> list;
    list.reserve(found.size());
    for (auto& [parts, value] : found) list.emplace_back(names_.Make(parts), std::move(value));
    return list;
  }

  int64_t size() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }

 private:
  static constexpr size_t kAtOnce = 64;  // removed under one hold of the lock

  struct Entry {
    std::string client;
    LeaseNumber lease = LeaseNumber::kNone;
    uint64_t secret = 0;
    int64_t bytes = 0;
    Instant used = 0;
    T value;
    std::list<uint64_t>::iterator place;  // in by_use_, if linked
    bool linked = false;                  // only without a lease
  };
  struct Use {
    int64_t entries = 0;
    int64_t bytes = 0;
  };

  absl::Status AdmissibleLocked(std::string_view client, int64_t bytes) const {
    const auto at = clients_.find(client);
    const Use own = at == clients_.end() ? Use{} : at->second;
    const auto check = [](Reason reason, const Limit& limit, int64_t have,
                          int64_t want) -> absl::Status {
      if (want <= limit.value - have) return absl::OkStatus();
      return ReasonError(reason, absl::StrCat(limit.name, ": ", want, " wanted, ", have, " of ",
                                              limit.value, " are held; free some"));
    };
    TETRAD_RETURN_IF_ERROR(
        check(Reason::kTableFull, limits_.entries, static_cast<int64_t>(entries_.size()), 1));
    TETRAD_RETURN_IF_ERROR(check(Reason::kTableFull, limits_.bytes, bytes_, bytes));
    TETRAD_RETURN_IF_ERROR(check(Reason::kQuota, limits_.client_entries, own.entries, 1));
    return check(Reason::kQuota, limits_.client_bytes, own.bytes, bytes);
  }

  absl::StatusOr<Entry*> FindLocked(std::string_view client, HandleNames::Parts parts) {
    const auto at = entries_.find(parts.number);
    if (at == entries_.end() || at->second.secret != parts.secret) return names_.Stale();
    if (at->second.client != client) return names_.NotYours();
    return &at->second;
  }

  // False if nothing of the lease is left.
  bool RemoveSomeOf(LeaseNumber lease) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kAtOnce; ++i) {
      const auto at = by_lease_.find(lease);
      if (at == by_lease_.end()) return false;
      Erase(*at->second.begin());  // the last one takes the set with it
    }
    return true;
  }

  // Out of all but the clients' sums.
  void Unlink(uint64_t number) {
    const auto at = entries_.find(number);
    if (at->second.linked) by_use_.erase(at->second.place);
    if (const auto lease = by_lease_.find(at->second.lease); lease != by_lease_.end()) {
      lease->second.erase(number);
      if (lease->second.empty()) by_lease_.erase(lease);
    }
    entries_.erase(at);
  }

  T Erase(uint64_t number) {
    Entry& entry = entries_.find(number)->second;
    T value = std::move(entry.value);
    const auto use = clients_.find(entry.client);
    use->second.bytes -= entry.bytes;
    bytes_ -= entry.bytes;
    if (--use->second.entries == 0) clients_.erase(use);
    Unlink(number);
    return value;
  }

  const HandleNames names_;
  const Limits limits_;
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<uint64_t, Entry> entries_;
  std::map<std::string, Use, std::less<>> clients_;  // of entries_
  // Ordered, so that what a lease held always goes in the same order.
  std::map<LeaseNumber, std::set<uint64_t>> by_lease_;
  std::list<uint64_t> by_use_;  // without a lease, least recent first
  int64_t bytes_ = 0;           // of entries_
  uint64_t last_ = 0;
};

}  // namespace tetrad
