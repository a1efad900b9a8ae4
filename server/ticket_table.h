// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TicketTable: the tickets of all clients, as a step function.
//
//   admitting   begun; has a key and counts, but nobody knows its name yet
//   under way   the engine has its request
//   done        its outcome is there, and is kept until it expires or is
//               forgotten
//
// Begin() makes a ticket, or finds the one that the client's key has; Admit()
// or Refuse() ends the first state, End() or Cancel() the second. A refused one
// leaves nothing, its key included. Tickets are the client's that began them:
// others are told that there is no such ticket. Numbers are bounded, bytes are
// whoever's makes the outcomes (client_bytes.h).
//
// Thread-safe. Time is given to each call and must not go back by much: what
// has expired by then is not there. Step() frees it, and ends waits whose time
// is over. Callbacks are called once, without a lock, from within the call that
// causes them; outcomes are let go of without one, too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/handle_name.h"
#include "engine/support/instant.h"
#include "server/client_bytes.h"

namespace tetrad {

enum class TicketNumber : uint64_t { kNone = 0 };
enum class WaiterId : uint64_t { kNone = 0 };

// Of a request: equal only if the requests are.
using RequestDigest = std::array<uint8_t, 32>;

// What became of a ticket: immutable, and shared by all who ask.
struct TicketOutcome {
  int code = 0;  // of google.rpc.Code
  std::string message;
  std::string reply;        // whatever answers a wait, ready to be sent
  ClientBytes::Hold bytes;  // that it takes
};
using TicketOutcomePtr = std::shared_ptr<const TicketOutcome>;

class TicketTable {
 public:
  struct Limits {
    int64_t tickets = 65536;
    int64_t client_tickets = 4096;
  };
  struct Order {
    std::string client;
    std::string key;         // empty: none
    RequestDigest digest{};  // used with a key
    int64_t keep_ns = 0;     // its outcome
  };
  struct Admission {
    std::string ticket;
    bool repeated = false;
  };
  using OnAdmission = absl::AnyInvocable<void(const absl::StatusOr<Admission>&)>;

  // How a wait ended.
  enum class Wake : uint8_t { kDone, kTimeOver, kClosed };
  using OnWake = absl::AnyInvocable<void(Wake wake, const TicketOutcomePtr& outcome)>;

  struct Stats {
    int64_t admitting = 0;
    int64_t under_way = 0;
    int64_t done = 0;
    int64_t repeats = 0;  // Begin() that found a ticket, since the start
  };

  TicketTable(const Limits& limits, uint64_t generation);

  // The number of a new ticket, which then must be admitted or refused; kNone if
  // none was made. `on_admission` hears the ticket when it is admitted, or why
  // there is none: RESOURCE_EXHAUSTED at a limit, ALREADY_EXISTS if the key is
  // another request's.
  TicketNumber Begin(Order order, OnAdmission on_admission, Instant now);
  void Admit(TicketNumber number);
  void Refuse(TicketNumber number, const absl::Status& why);
  // False if it has an outcome already: this one is dropped.
  bool End(TicketNumber number, TicketOutcomePtr outcome, Instant now);

  // Nobody will ask for it: its outcome is not kept.
  void Abandon(TicketNumber number);

  // Unless it is done, it is now, with `outcome`, and its number is the answer;
  // else kNone. NOT_FOUND; ABORTED: of an earlier daemon; INVALID_ARGUMENT.
  absl::StatusOr<TicketNumber> Cancel(std::string_view client, std::string_view ticket,
                                      TicketOutcomePtr outcome, Instant now);
  // `on_wake` is called when it is done, when `until` has come, or by Close();
  // not if the answer is an error, which are those of Cancel(). kNone: it was
  // called already.
  absl::StatusOr<WaiterId> Wait(std::string_view client, std::string_view ticket, Instant until,
                                OnWake on_wake, Instant now);
  // False if its callback was or is being called.
  bool StopWaiting(WaiterId id);
  // Drops it if it is done.
  void Forget(std::string_view client, std::string_view ticket);
  // Ends all waits, and those that come for what is not done.
  void Close();

  // Does what is due; when to call it again.
  Instant Step(Instant now);
  Instant due() const;
  Stats stats() const;

 private:
  enum class State : uint8_t { kAdmitting, kUnderWay, kDone };
  struct Ticket {
    Order order;
    uint64_t secret = 0;
    State state = State::kAdmitting;
    std::vector<std::pair<OnAdmission, bool>> admissions;  // and whether it is a repeat
    TicketOutcomePtr outcome;
    Instant expires = kNever;
    absl::flat_hash_set<uint64_t> waiters;
  };
  struct Waiter {
    uint64_t ticket = 0;
    Instant until = kNever;
    OnWake on_wake;
  };
  using Key = std::pair<std::string, std::string>;  // client, key
  // What is called and let go of once the lock is given up.
  class Aftermath;

  // All below need mutex_.
  absl::StatusOr<uint64_t> Find(std::string_view client, std::string_view text, Instant now) const;
  std::string NameOf(uint64_t number, const Ticket& ticket) const;
  void Finish(uint64_t number, Ticket& ticket, TicketOutcomePtr outcome, Instant now,
              Aftermath& after);
  void Remove(uint64_t number, Aftermath& after);
  void WakeUp(uint64_t id, Wake wake, const TicketOutcomePtr& outcome, Aftermath& after);
  void Expire(Instant now, Aftermath& after);
  Instant DueLocked() const;
  int64_t& CountOf(State state);

  const Limits limits_;
  const HandleNames names_;
  mutable std::mutex mutex_;  // guards all below
  uint64_t last_ticket_ = 0;
  uint64_t last_waiter_ = 0;
  absl::flat_hash_map<uint64_t, Ticket> tickets_;
  absl::flat_hash_map<Key, uint64_t> keys_;
  absl::flat_hash_map<std::string, int64_t> by_client_;
  std::set<std::pair<Instant, uint64_t>> expiries_;
  absl::flat_hash_map<uint64_t, Waiter> waiters_;
  std::set<std::pair<Instant, uint64_t>> timeouts_;
  Stats stats_;
  bool closed_ = false;
};

}  // namespace tetrad
