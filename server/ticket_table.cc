// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/ticket_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

class TicketTable::Aftermath {
 public:
  Aftermath() = default;
  Aftermath(const Aftermath&) = delete;
  Aftermath& operator=(const Aftermath&) = delete;
  ~Aftermath() {
    for (auto& call : calls_) call();
  }
  void Call(absl::AnyInvocable<void()> call) { calls_.push_back(std::move(call)); }
  void Drop(TicketOutcomePtr outcome) { dropped_.push_back(std::move(outcome)); }

 private:
  std::vector<absl::AnyInvocable<void()>> calls_;
  std::vector<TicketOutcomePtr> dropped_;
};

TicketTable::TicketTable(const Limits& limits, uint64_t generation)
    : limits_(limits), names_("ticket", generation, "submit again") {}

int64_t& TicketTable::CountOf(State state) {
  return state == State::kAdmitting  ? stats_.admitting
         : state == State::kUnderWay ? stats_.under_way
                                     : stats_.done;
}

std::string TicketTable::NameOf(uint64_t number, const Ticket& ticket) const {
  return names_.Make({number, ticket.secret});
}

// One answer for what never was, what is no more and what is another's: whether
// a name is right is nobody else's business.
absl::StatusOr<uint64_t> TicketTable::Find(std::string_view client, std::string_view text,
                                           Instant now) const {
  TETRAD_ASSIGN_OR_RETURN(const HandleNames::Parts parts, names_.Parse(text));
  const auto found = tickets_.find(parts.number);
  if (found == tickets_.end() || found->second.secret != parts.secret ||
      found->second.order.client != client || found->second.state == State::kAdmitting ||
      found->second.expires <= now) {
    return ReasonError(Reason::kTicketNotFound,
                       "ticket: this client has none of that name, or it is kept no more");
  }
  return parts.number;
}

TicketNumber TicketTable::Begin(Order order, OnAdmission on_admission, Instant now) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  Expire(now, after);
  const auto answer = [&](absl::StatusOr<Admission> admission) {
    after.Call([on_admission = std::move(on_admission),
                admission = std::move(admission)]() mutable { on_admission(admission); });
    return TicketNumber::kNone;
  };
  if (!order.key.empty()) {
    if (const auto known = keys_.find({order.client, order.key}); known != keys_.end()) {
      Ticket& ticket = tickets_.at(known->second);
      if (ticket.order.digest != order.digest) {
        return answer(ReasonError(Reason::kKeyReused,
                                  "idempotency_key: another request was submitted under it"));
      }
      ++stats_.repeats;
      if (ticket.state != State::kAdmitting) {
        return answer(Admission{NameOf(known->second, ticket), true});
      }
      ticket.admissions.emplace_back(std::move(on_admission), true);
      return TicketNumber::kNone;
    }
  }
  if (static_cast<int64_t>(tickets_.size()) >= limits_.tickets) {
    return answer(ReasonError(Reason::kTableFull, absl::StrCat("max_tickets: all clients have ",
                                                               limits_.tickets, ", the limit")));
  }
  int64_t& of_client = by_client_[order.client];
  if (of_client >= limits_.client_tickets) {
    return answer(ReasonError(Reason::kQuota, absl::StrCat("client_tickets: this client has ",
                                                           of_client, ", the limit")));
  }
  ++of_client;
  ++stats_.admitting;
  const uint64_t number = ++last_ticket_;
  if (!order.key.empty()) keys_.emplace(Key{order.client, order.key}, number);
  Ticket& ticket = tickets_[number];
  ticket.order = std::move(order);
  ticket.secret = HandleNames::DrawSecret();
  ticket.admissions.emplace_back(std::move(on_admission), false);
  return TicketNumber{number};
}

void TicketTable::Admit(TicketNumber number) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  const auto value = static_cast<uint64_t>(number);
  Ticket& ticket = tickets_.at(value);
  --stats_.admitting;
  ++stats_.under_way;
  ticket.state = State::kUnderWay;
  for (auto& [on_admission, repeated] : ticket.admissions) {
    after.Call([on_admission = std::move(on_admission),
                admission = absl::StatusOr<Admission>(Admission{
                    NameOf(value, ticket), repeated})]() mutable { on_admission(admission); });
  }
  ticket.admissions.clear();
}

void TicketTable::Refuse(TicketNumber number, const absl::Status& why) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  Ticket& ticket = tickets_.at(static_cast<uint64_t>(number));
  for (auto& admission : ticket.admissions) {
    after.Call([on_admission = std::move(admission.first),
                refusal = absl::StatusOr<Admission>(why)]() mutable { on_admission(refusal); });
  }
  Remove(static_cast<uint64_t>(number), after);
}

bool TicketTable::End(TicketNumber number, TicketOutcomePtr outcome, Instant now) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(static_cast<uint64_t>(number));
  if (found == tickets_.end() || found->second.state == State::kDone) {
    after.Drop(std::move(outcome));
    return false;
  }
  Finish(found->first, found->second, std::move(outcome), now, after);
  return true;
}

void TicketTable::Abandon(TicketNumber number) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(static_cast<uint64_t>(number));
  if (found == tickets_.end()) return;
  if (found->second.state == State::kDone) {
    Remove(found->first, after);
  } else {
    found->second.order.keep_ns = 0;
  }
}

void TicketTable::Finish(uint64_t number, Ticket& ticket, TicketOutcomePtr outcome, Instant now,
                         Aftermath& after) {
  --CountOf(ticket.state);
  ++stats_.done;
  ticket.state = State::kDone;
  ticket.outcome = std::move(outcome);
  ticket.expires = After(now, ticket.order.keep_ns);
  expiries_.emplace(ticket.expires, number);
  for (const uint64_t id : std::exchange(ticket.waiters, {})) {
    WakeUp(id, Wake::kDone, ticket.outcome, after);
  }
}

absl::StatusOr<TicketNumber> TicketTable::Cancel(std::string_view client, std::string_view ticket,
                                                 TicketOutcomePtr outcome, Instant now) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const uint64_t number, Find(client, ticket, now));
  Ticket& found = tickets_.at(number);
  if (found.state == State::kDone) {
    after.Drop(std::move(outcome));
    return TicketNumber::kNone;
  }
  Finish(number, found, std::move(outcome), now, after);
  return TicketNumber{number};
}

absl::StatusOr<WaiterId> TicketTable::Wait(std::string_view client, std::string_view ticket,
                                           Instant until, OnWake on_wake, Instant now) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(const uint64_t number, Find(client, ticket, now));
  Ticket& found = tickets_.at(number);
  if (found.state == State::kDone || closed_ || until <= now) {
    const Wake wake = found.state == State::kDone ? Wake::kDone
                      : closed_                   ? Wake::kClosed
                                                  : Wake::kTimeOver;
    after.Call([on_wake = std::move(on_wake), wake, outcome = found.outcome]() mutable {
      on_wake(wake, outcome);
    });
    return WaiterId::kNone;
  }
  const uint64_t id = ++last_waiter_;
  if (until != kNever) timeouts_.emplace(until, id);
  found.waiters.insert(id);
  waiters_.emplace(id, Waiter{number, until, std::move(on_wake)});
  return WaiterId{id};
}

void TicketTable::WakeUp(uint64_t id, Wake wake, const TicketOutcomePtr& outcome,
                         Aftermath& after) {
  const auto found = waiters_.find(id);
  timeouts_.erase({found->second.until, id});
  after.Call([on_wake = std::move(found->second.on_wake), wake, outcome]() mutable {
    on_wake(wake, outcome);
  });
  waiters_.erase(found);
}

bool TicketTable::StopWaiting(WaiterId id) {
  OnWake dropped;
  std::lock_guard lock(mutex_);
  const auto found = waiters_.find(static_cast<uint64_t>(id));
  if (found == waiters_.end()) return false;
  timeouts_.erase({found->second.until, found->first});
  tickets_.at(found->second.ticket).waiters.erase(found->first);
  dropped = std::move(found->second.on_wake);
  waiters_.erase(found);
  return true;
}

void TicketTable::Forget(std::string_view client, std::string_view ticket) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  const absl::StatusOr<uint64_t> number = Find(client, ticket, /*now=*/0);
  if (number.ok() && tickets_.at(*number).state == State::kDone) Remove(*number, after);
}

void TicketTable::Remove(uint64_t number, Aftermath& after) {
  const auto found = tickets_.find(number);
  Ticket& ticket = found->second;
  --CountOf(ticket.state);
  expiries_.erase({ticket.expires, number});
  if (!ticket.order.key.empty()) keys_.erase({ticket.order.client, ticket.order.key});
  const auto of_client = by_client_.find(ticket.order.client);
  if (--of_client->second == 0) by_client_.erase(of_client);
  after.Drop(std::move(ticket.outcome));
  tickets_.erase(found);
}

void TicketTable::Close() {
  Aftermath after;
  std::lock_guard lock(mutex_);
  closed_ = true;
  while (!waiters_.empty()) {
    const auto& [id, waiter] = *waiters_.begin();
    tickets_.at(waiter.ticket).waiters.erase(id);
    WakeUp(id, Wake::kClosed, nullptr, after);
  }
}

void TicketTable::Expire(Instant now, Aftermath& after) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    Remove(expiries_.begin()->second, after);
  }
}

Instant TicketTable::Step(Instant now) {
  Aftermath after;
  std::lock_guard lock(mutex_);
  Expire(now, after);
  while (!timeouts_.empty() && timeouts_.begin()->first <= now) {
    const uint64_t id = timeouts_.begin()->second;
    tickets_.at(waiters_.at(id).ticket).waiters.erase(id);
    WakeUp(id, Wake::kTimeOver, nullptr, after);
  }
  return DueLocked();
}

Instant TicketTable::DueLocked() const {
  const Instant expiry = expiries_.empty() ? kNever : expiries_.begin()->first;
  return timeouts_.empty() ? expiry : std::min(expiry, timeouts_.begin()->first);
}

Instant TicketTable::due() const {
  std::lock_guard lock(mutex_);
  return DueLocked();
}

TicketTable::Stats TicketTable::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace tetrad
