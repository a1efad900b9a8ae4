// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/tickets.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/status.pb.h"

#include "engine/steady_clock.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/execute_task.h"
#include "server/request_digest.h"
#include "server/status.h"

namespace tetrad {
namespace {

// Of an outcome beside its output, and of an error: its text and details are
// bounded by what fits a trailer.
constexpr int64_t kOutcomeSlackBytes = 16 << 10;

absl::Status Check(const v1::SubmitRequest& request) {
  if (!request.has_execute()) {
    return FieldError({.field = "execute", .limit = "a request"}, Reason::kFieldMissing);
  }
  if (!request.idempotency_key().empty()) {
    TETRAD_RETURN_IF_ERROR(ValidateKey("idempotency_key", request.idempotency_key()));
  }
  TETRAD_RETURN_IF_ERROR(CheckSeconds("timeout_seconds", request.timeout_seconds()));
  return CheckSeconds("keep_seconds", request.keep_seconds());
}

// `reply` becomes part of it.
std::shared_ptr<TicketOutcome> MakeOutcome(const absl::Status& status, v1::ExecuteResponse& reply) {
  v1::WaitResponse response;
  response.set_done(true);
  auto outcome = std::make_shared<TicketOutcome>();
  if (status.ok()) {
    response.mutable_response()->Swap(&reply);
  } else {
    const grpc::Status told = ToGrpc(status);
    outcome->code = told.error_code();
    outcome->message = told.error_message();
    response.set_code(told.error_code());
    response.set_message(told.error_message());
    google::rpc::Status rich;
    if (rich.ParseFromString(told.error_details())) {
      response.mutable_details()->Swap(rich.mutable_details());
    }
  }
  outcome->reply = response.SerializeAsString();
  return outcome;
}

std::shared_ptr<TicketOutcome> MakeOutcome(const absl::Status& status) {
  v1::ExecuteResponse none;
  return MakeOutcome(status, none);
}

int64_t BytesOf(const TicketOutcome& outcome) {
  return static_cast<int64_t>(sizeof(outcome) + outcome.message.capacity() +
                              outcome.reply.capacity());
}

}  // namespace

absl::Status CheckSeconds(std::string_view field, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) return absl::OkStatus();
  return FieldError({.field = std::string(field),
                     .value = absl::StrCat(seconds),
                     .limit = "finite and at least 0"});
}

// One request under way.
class Tickets::Run {
 public:
  Run(Tickets& tickets, TicketNumber number, Caller caller, v1::SubmitRequest&& request,
      CallGate::Pass pass, ClientBytes::Hold bytes)
      : number(number),
        caller(std::move(caller)),
        request(std::move(request)),
        pass(std::move(pass)),
        bytes(std::move(bytes)),
        task(tickets.service_, this->caller.client, this->caller.flow,
             {.reserve =
                  [this](int64_t output) { return this->bytes.Grow(output + kOutcomeSlackBytes); },
              .admitted =
                  [this, &tickets] {
                    admitted = true;
                    tickets.table_.Admit(this->number);
                  }}) {}

  const TicketNumber number;
  const Caller caller;
  v1::SubmitRequest request;
  v1::ExecuteResponse reply;
  CallGate::Pass pass;
  ClientBytes::Hold bytes;
  bool admitted = false;  // before `done` of the task
  ExecuteTask task;
};

Tickets::Tickets(const ServiceContext& service)
    : service_(service),
      bytes_(ClientBytes::Create("ticket_bytes", {.all = service.config.ticket_bytes,
                                                  .client = service.config.ticket_bytes / 2})),
      table_(
          {.tickets = service.config.max_tickets, .client_tickets = service.config.client_tickets},
          HandleNames::DrawSecret()),
      alarm_([this] { return table_.Step(SteadyNow()); }) {}

Tickets::~Tickets() { EndAll(); }

absl::Duration Tickets::Keep(double seconds) const {
  const absl::Duration most = absl::Seconds(service_.config.ticket_keep_seconds);
  return seconds == 0 ? most : std::min(most, absl::Seconds(seconds));
}

TicketNumber Tickets::Submit(const Caller& caller, v1::SubmitRequest&& request,
                             TicketTable::OnAdmission on_admission) {
  TicketTable::Order order;
  const absl::Status legal = Guarded([&]() -> absl::Status {
    TETRAD_RETURN_IF_ERROR(Check(request));
    order.client = caller.client;
    order.key = request.idempotency_key();
    if (!order.key.empty()) order.digest = DigestOf(request.execute());
    order.keep_ns = absl::ToInt64Nanoseconds(Keep(request.keep_seconds()));
    return absl::OkStatus();
  });
  if (!legal.ok()) {
    on_admission(legal);
    return TicketNumber::kNone;
  }
  const TicketNumber number = table_.Begin(std::move(order), std::move(on_admission), SteadyNow());
  if (number == TicketNumber::kNone) return number;
  const absl::Status started = Guarded([&] { return Start(number, caller, std::move(request)); });
  if (!started.ok()) table_.Refuse(number, started);
  return number;
}

absl::Status Tickets::Start(TicketNumber number, const Caller& caller,
                            v1::SubmitRequest&& request) {
  const absl::Time deadline = absl::Now() + Keep(request.timeout_seconds());
  TETRAD_ASSIGN_OR_RETURN(CallGate::Pass pass, service_.gate.Enter());
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  TETRAD_ASSIGN_OR_RETURN(ClientBytes::Hold hold, bytes_->Take(caller.client, bytes));
  // Counted until the last reference is gone, whoever has it.
  auto made = std::make_unique<Run>(*this, number, caller, std::move(request), std::move(pass),
                                    std::move(hold));
  {
    std::lock_guard lock(mutex_);
    ++live_;
  }
  const std::shared_ptr<Run> run(made.release(), [this](Run* last) {
    delete last;
    std::lock_guard lock(mutex_);
    if (--live_ == 0) none_live_.notify_all();
  });
  {
    std::lock_guard lock(mutex_);
    runs_.emplace(number, run);
  }
  run->task.Start(run->request.execute(), deadline, run->reply,
                  [this, run](const absl::Status& status) { Ended(run, status); });
  return absl::OkStatus();
}

void Tickets::Ended(const std::shared_ptr<Run>& run, const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    runs_.erase(run->number);
  }
  if (!run->admitted) return table_.Refuse(run->number, status);
  run->request.Clear();
  std::shared_ptr<TicketOutcome> outcome;
  const absl::Status made = Guarded([&] {
    outcome = MakeOutcome(status, run->reply);
    return absl::OkStatus();
  });
  if (!made.ok()) outcome = MakeOutcome(made);
  run->reply.Clear();
  run->task.ReturnBytes();
  run->bytes.ShrinkTo(BytesOf(*outcome));
  outcome->bytes = std::move(run->bytes);
  const auto code = static_cast<grpc::StatusCode>(outcome->code);
  if (code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::DATA_LOSS) {
    service_.log.Error("ticket failed", {{"client", run->caller.client},
                                         {"request", run->caller.request},
                                         {"code", CodeName(code)},
                                         {"error", outcome->message}});
  }
  if (!table_.End(run->number, std::move(outcome), SteadyNow())) return;
  service_.metrics.TicketEnded(code);
  alarm_.Arm(table_.due());
}

std::shared_ptr<Tickets::Run> Tickets::FindRun(TicketNumber number) {
  std::lock_guard lock(mutex_);
  const auto found = runs_.find(number);
  return found == runs_.end() ? nullptr : found->second;
}

void Tickets::Abandon(TicketNumber number, const absl::Status& why) {
  table_.Abandon(number);
  if (const std::shared_ptr<Run> run = FindRun(number)) run->task.Cancel(why);
}

absl::StatusOr<WaiterId> Tickets::Wait(std::string_view client, std::string_view ticket,
                                       absl::Duration limit, TicketTable::OnWake on_wake) {
  const Instant now = SteadyNow();
  // Saturates far beyond any wait.
  const Instant until =
      limit == absl::InfiniteDuration() ? kNever : After(now, absl::ToInt64Nanoseconds(limit));
  TETRAD_ASSIGN_OR_RETURN(const WaiterId id,
                          table_.Wait(client, ticket, until, std::move(on_wake), now));
  if (id != WaiterId::kNone) alarm_.Arm(until);
  return id;
}

absl::StatusOr<bool> Tickets::Cancel(std::string_view client, std::string_view ticket) {
  const absl::Status cancelled = ReasonError(Reason::kCancelled, "cancelled by the client");
  TETRAD_ASSIGN_OR_RETURN(const TicketNumber number,
                          table_.Cancel(client, ticket, MakeOutcome(cancelled), SteadyNow()));
  if (number == TicketNumber::kNone) return false;
  service_.metrics.TicketEnded(grpc::StatusCode::CANCELLED);
  alarm_.Arm(table_.due());
  // Its end comes too late for the table, and gives back what it holds.
  if (const std::shared_ptr<Run> run = FindRun(number)) run->task.Cancel(cancelled);
  return true;
}

void Tickets::EndAll() {
  std::vector<std::shared_ptr<Run>> runs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& entry : runs_) runs.push_back(entry.second);
  }
  const absl::Status ending = ReasonError(Reason::kDraining, "the daemon is shutting down");
  for (const auto& run : runs) run->task.Cancel(ending);
  runs.clear();
  std::unique_lock lock(mutex_);
  none_live_.wait(lock, [this] { return live_ == 0; });
}

}  // namespace tetrad
