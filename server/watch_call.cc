// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/watch_call.h"

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/status.h"

namespace tetrad {
namespace {

class WatchCall final : public grpc::ServerWriteReactor<v1::TicketEvent>,
                        public std::enable_shared_from_this<WatchCall> {
 public:
  WatchCall(const ServiceContext& service, Tickets& tickets, grpc::CallbackServerContext& context)
      : service_(service),
        tickets_(tickets),
        context_(context),
        call_(service, Method::kWatch, context) {}

  void Start(const v1::WatchRequest& request);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  absl::Status Check(const v1::WatchRequest& request) const;
  void Watch(const std::string& ticket);
  void Hear(const std::string& ticket, int code, const std::string& message);
  void HearClosed();
  void Step(std::unique_lock<std::mutex> lock);

  const ServiceContext& service_;
  Tickets& tickets_;
  const grpc::CallbackServerContext& context_;
  Call call_;
  std::shared_ptr<WatchCall> self_;  // until OnDone()
  std::vector<WaiterId> waiters_;    // filled by Start()
  int64_t taken_bytes_ = 0;          // of call_bytes, for the request

  std::mutex mutex_;
  v1::TicketEvent event_;               // stable while writing_
  std::deque<v1::TicketEvent> events_;  // to be told; guarded by mutex_
  size_t left_ = 0;                     // tickets not heard of; guarded by mutex_
  bool closed_ = false;                 // the gate; guarded by mutex_
  bool cancelled_ = false;              // guarded by mutex_
  bool stalled_ = false;                // the client took no event; guarded by mutex_
  bool writing_ = true;                 // or starting; guarded by mutex_
  bool finished_ = false;               // guarded by mutex_
};

absl::Status WatchCall::Check(const v1::WatchRequest& request) const {
  TETRAD_RETURN_IF_ERROR(call_.admission());
  const int64_t most = service_.config.client_tickets;
  if (request.tickets_size() >= 1 && request.tickets_size() <= most) return absl::OkStatus();
  return FieldError({.field = "tickets",
                     .value = absl::StrCat(request.tickets_size()),
                     .limit = absl::StrCat("1 to ", most, " names")});
}

void WatchCall::Start(const v1::WatchRequest& request) {
  self_ = shared_from_this();
  call_.AddReceived(static_cast<int64_t>(request.ByteSizeLong()));
  if (const absl::Status status = Check(request); !status.ok()) {
    finished_ = true;
    return Finish(call_.End(status));
  }
  // The library keeps the request as long as the call lasts.
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  if (const absl::Status taken = TakeCallBytes(service_, bytes); !taken.ok()) {
    finished_ = true;
    return Finish(call_.End(taken));
  }
  taken_bytes_ = bytes;
  call_.LeaveGate();
  left_ = static_cast<size_t>(request.tickets_size());
  waiters_.reserve(left_);
  for (const std::string& ticket : request.tickets()) Watch(ticket);
  std::unique_lock lock(mutex_);
  writing_ = false;
  Step(std::move(lock));
}

void WatchCall::Watch(const std::string& ticket) {
  // What is told of a ticket does not keep its outcome.
  const auto waiter = tickets_.Wait(
      call_.client(), ticket, absl::InfiniteDuration(),
      [weak = weak_from_this(), ticket](TicketTable::Wake wake, const TicketOutcomePtr& outcome) {
        const auto call = weak.lock();
        if (call == nullptr) return;
        if (wake == TicketTable::Wake::kDone) {
          call->Hear(ticket, outcome->code, outcome->message);
        } else {
          call->HearClosed();
        }
      });
  if (waiter.ok()) {
    waiters_.push_back(*waiter);
  } else {
    const grpc::Status told = ToGrpc(waiter.status());
    Hear(ticket, told.error_code(), told.error_message());
  }
}

void WatchCall::Hear(const std::string& ticket, int code, const std::string& message) {
  std::unique_lock lock(mutex_);
  v1::TicketEvent& event = events_.emplace_back();
  event.set_ticket(ErrorText(ticket));
  event.set_code(code);
  event.set_message(message);
  --left_;
  Step(std::move(lock));
}

void WatchCall::HearClosed() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  Step(std::move(lock));
}

void WatchCall::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  stalled_ |= !call_.ClientMoved();
  cancelled_ |= !ok || stalled_;
  Step(std::move(lock));
}

void WatchCall::OnCancel() {
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  Step(std::move(lock));
}

// Starts the next write, or the end, if neither is under way. The RPC library
// is called without the lock, because it may call back at once.
void WatchCall::Step(std::unique_lock<std::mutex> lock) {
  if (writing_ || finished_) return;
  if (!cancelled_ && !events_.empty()) {
    event_ = std::move(events_.front());
    events_.pop_front();
    call_.AddSent(static_cast<int64_t>(event_.ByteSizeLong()));
    writing_ = true;
    lock.unlock();
    call_.AwaitClient();
    return StartWrite(&event_);
  }
  if (!cancelled_ && left_ > 0 && !closed_) return;
  finished_ = true;
  const absl::Status status = stalled_     ? call_.Stalled()
                              : cancelled_ ? CancelledStatus(context_)
                              : left_ == 0
                                  ? absl::OkStatus()
                                  : ReasonError(Reason::kDraining, "the daemon is shutting down");
  lock.unlock();
  Finish(call_.End(status));
}

void WatchCall::OnDone() {
  const std::shared_ptr<WatchCall> self = std::move(self_);
  call_.StopWaiting();
  service_.call_bytes.Give(taken_bytes_);
  for (const WaiterId waiter : waiters_) tickets_.StopWaiting(waiter);
}

}  // namespace

grpc::ServerWriteReactor<v1::TicketEvent>* StartWatch(const ServiceContext& service,
                                                      Tickets& tickets,
                                                      grpc::CallbackServerContext& context,
                                                      const v1::WatchRequest& request) {
  const auto call = std::make_shared<WatchCall>(service, tickets, context);
  call->Start(request);
  return call.get();
}

}  // namespace tetrad
