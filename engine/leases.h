// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Leases: which clients are there, as a step function of injected time.
//
// A client that attached holds a lease. When its attachment ends, a grace time
// begins in which it may come back and find all it held; after that the lease
// has ended, and Step() tells its owner to free what belonged to it. What that
// is, is not known here: blocks and plan handles carry the number of their
// lease (handle_table.h).
//
// A client whose connection broke is back long before anybody can know that the
// old attachment is dead. So the newest one counts: attaching again replaces
// what was there, and the end of what was replaced means nothing.
//
// Names are those of handle_name.h; the errors are those of handle_table.h: ABORTED for a lease
// that has ended or is of an earlier process, PERMISSION_DENIED for another
// client's. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "engine/handle_name.h"
#include "engine/support/instant.h"

namespace tetrad {

struct LeaseLimits {
  absl::Duration grace = absl::Seconds(30);
  absl::Duration handle_idle = absl::Minutes(10);  // of plan handles without a lease
  int64_t max_leases = 4096;
  int64_t client_blocks = 65536;   // of one client
  int64_t client_block_bytes = 0;  // of one client; 0: half of the device's memory
};

enum class LeaseNumber : uint64_t { kNone = 0 };

class Leases {
 public:
  Leases(const LeaseLimits& limits, uint64_t generation);

  // A new lease, with attachment number 1. RESOURCE_EXHAUSTED at the limit.
  absl::StatusOr<std::string> Open(std::string_view client);
  // Attaches it again; the number of this attachment.
  absl::StatusOr<uint64_t> Resume(std::string_view client, std::string_view lease);
  // The grace time begins, if that was the newest attachment of a lease that
  // has not ended.
  void Detach(std::string_view lease, uint64_t attachment, Instant now);
  // Ends it now, attached or not; its number, for the caller to free what it held.
  absl::StatusOr<LeaseNumber> End(std::string_view client, std::string_view lease);
  // Whoever holds it.
  struct Ended {
    LeaseNumber number{};
    std::string client;
  };
  absl::StatusOr<Ended> End(std::string_view lease);

  absl::StatusOr<LeaseNumber> Find(std::string_view client, std::string_view lease) const;
  // Asked after something was registered under the number: if it has ended
  // meanwhile, its end may have missed what was registered.
  bool Lives(LeaseNumber lease) const;

  // Ends the leases whose grace time is over and appends them to `ended`;
  // returns when the next one's is, kNever if none runs.
  Instant Step(Instant now, std::vector<LeaseNumber>& ended);

  struct Stats {
    int64_t leases = 0;    // attached or in their grace time
    int64_t detached = 0;  // in their grace time
    int64_t expired = 0;   // ended by Step(), since the start
  };
  Stats stats() const;

 private:
  struct Lease {
    std::string client;
    uint64_t secret = 0;
    uint64_t attachments = 1;  // so far; the newest one's number
    Instant expiry = kNever;   // kNever: attached
  };
  using Map = std::unordered_map<uint64_t, Lease>;
  absl::StatusOr<Map::const_iterator> FindLocked(std::string_view lease) const;
  absl::StatusOr<Map::const_iterator> FindLocked(std::string_view client,
                                                 std::string_view lease) const;
  void Erase(Map::const_iterator at);

  const int64_t grace_ns_;
  const int64_t max_leases_;
  const HandleNames names_;
  mutable std::mutex mutex_;
  Map leases_;                                       // guarded by mutex_
  std::set<std::pair<Instant, uint64_t>> expiries_;  // of detached ones; guarded by mutex_
  uint64_t last_ = 0;                                // guarded by mutex_
  int64_t expired_ = 0;                              // guarded by mutex_
};

}  // namespace tetrad
