// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/leases.h"

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

Leases::Leases(const LeaseLimits& limits, uint64_t generation)
    : grace_ns_(absl::ToInt64Nanoseconds(limits.grace)),
      max_leases_(limits.max_leases),
      names_("lease", generation, "attach again") {}

absl::StatusOr<std::string> Leases::Open(std::string_view client) {
  Lease lease{std::string(client), HandleNames::DrawSecret()};
  std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(leases_.size()) >= max_leases_) {
    return ReasonError(Reason::kTableFull,
                       absl::StrCat("max_leases: ", leases_.size(), " leases are held, the limit"));
  }
  const HandleNames::Parts parts{++last_, lease.secret};
  std::string name = names_.Make(parts);
  leases_.emplace(parts.number, std::move(lease));
  return name;
}

absl::StatusOr<Leases::Map::const_iterator> Leases::FindLocked(std::string_view lease) const {
  TETRAD_ASSIGN_OR_RETURN(const HandleNames::Parts parts, names_.Parse(lease));
  const auto at = leases_.find(parts.number);
  if (at == leases_.end() || at->second.secret != parts.secret) return names_.Stale();
  return at;
}

absl::StatusOr<Leases::Map::const_iterator> Leases::FindLocked(std::string_view client,
                                                               std::string_view lease) const {
  TETRAD_ASSIGN_OR_RETURN(const Map::const_iterator at, FindLocked(lease));
  if (at->second.client != client) return names_.NotYours();
  return at;
}

absl::StatusOr<uint64_t> Leases::Resume(std::string_view client, std::string_view lease) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const Map::const_iterator found, FindLocked(client, lease));
  Lease& resumed = leases_.find(found->first)->second;
  expiries_.erase({resumed.expiry, found->first});
  resumed.expiry = kNever;
  return ++resumed.attachments;
}

void Leases::Detach(std::string_view lease, uint64_t attachment, Instant now) {
  const auto parts = names_.Parse(lease);
  if (!parts.ok()) return;
  std::lock_guard lock(mutex_);
  const auto at = leases_.find(parts->number);
  if (at == leases_.end() || at->second.secret != parts->secret) return;
  if (at->second.attachments != attachment || at->second.expiry != kNever) return;
  // An instant below kNever, which means "attached".
  const Instant expiry = std::min(After(now, grace_ns_), kNever - 1);
  expiries_.emplace(expiry, at->first);  // first: it may throw
  at->second.expiry = expiry;
}

void Leases::Erase(Map::const_iterator at) {
  if (at->second.expiry != kNever) expiries_.erase({at->second.expiry, at->first});
  leases_.erase(at);
}

absl::StatusOr<LeaseNumber> Leases::End(std::string_view client, std::string_view lease) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const Map::const_iterator at, FindLocked(client, lease));
  const LeaseNumber number{at->first};
  Erase(at);
  return number;
}

absl::StatusOr<Leases::Ended> Leases::End(std::string_view lease) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const Map::const_iterator at, FindLocked(lease));
  Ended ended{LeaseNumber{at->first}, at->second.client};
  Erase(at);
  return ended;
}

absl::StatusOr<LeaseNumber> Leases::Find(std::string_view client, std::string_view lease) const {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const Map::const_iterator at, FindLocked(client, lease));
  return LeaseNumber{at->first};
}

bool Leases::Lives(LeaseNumber lease) const {
  std::lock_guard lock(mutex_);
  return leases_.contains(static_cast<uint64_t>(lease));
}

Instant Leases::Step(Instant now, std::vector<LeaseNumber>& ended) {
  std::lock_guard lock(mutex_);
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const uint64_t number = expiries_.begin()->second;
    ended.push_back(LeaseNumber{number});
    expiries_.erase(expiries_.begin());
    leases_.erase(number);
    ++expired_;
  }
  return expiries_.empty() ? kNever : expiries_.begin()->first;
}

Leases::Stats Leases::stats() const {
  std::lock_guard lock(mutex_);
  return {static_cast<int64_t>(leases_.size()), static_cast<int64_t>(expiries_.size()), expired_};
}

}  // namespace tetrad
