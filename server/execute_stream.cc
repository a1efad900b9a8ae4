// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_stream.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/identity.h"
#include "server/status.h"
#include "server/stream_slots.h"

namespace tetrad {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>;

// Clients that have a name share the device with each other, however many streams
// they open. Those that have none are one client to us, and it would be the most
// eager of them that gets the device: there, each stream is a flow of its own.
Flow FlowOf(const Call& call) {
  Flow flow = call.caller().flow;
  if (IsAnonymous(call.client())) flow.id = absl::HashOf(flow.id, &call);
  return flow;
}

class ExecuteStream final : public Reactor, public std::enable_shared_from_this<ExecuteStream> {
 public:
  ExecuteStream(const ServiceContext& service, grpc::CallbackServerContext& context)
      : service_(service),
        context_(context),
        call_(service, Method::kExecuteStream, context),
        flow_(FlowOf(call_)),
        slots_(static_cast<size_t>(service.config.stream_in_flight)) {}

  void Start();
  void Hear(DrainStage stage);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // These hold mutex_.
  absl::Status Admit(StreamSlot& slot);
  void Enqueue(StreamSlot& slot, const absl::Status& status);
  std::optional<absl::Status> Ending();

  void Execute(StreamSlot& slot);
  void Answered(StreamSlot& slot, const absl::Status& status);
  void GiveUp(std::unique_lock<std::mutex> lock);
  void Step(std::unique_lock<std::mutex> lock);

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  Call call_;
  const Flow flow_;
  std::shared_ptr<ExecuteStream> self_;  // until OnDone()
  OpenStreams::Membership membership_;
  v1::ExecuteStreamRequest incoming_;  // of the read under way

  std::mutex mutex_;
  StreamSlots slots_;              // guarded by mutex_
  StreamSlot* writing_ = nullptr;  // guarded by mutex_
  int64_t running_ = 0;            // executions not ended; guarded by mutex_
  int acting_ = 0;                 // threads about to call the RPC library; guarded by mutex_
  bool reading_ = false;           // or taking what was read; guarded by mutex_
  bool half_closed_ = false;       // guarded by mutex_
  bool cancelled_ = false;         // guarded by mutex_
  bool stalled_ = false;           // guarded by mutex_
  bool closed_ = false;            // the gate; guarded by mutex_
  bool finished_ = false;          // guarded by mutex_
};

void ExecuteStream::Start() {
  self_ = shared_from_this();
  if (!call_.admission().ok()) {
    finished_ = true;
    return Finish(call_.End(call_.admission()));
  }
  OpenStreams::Joined joined =
      service_.streams.Join(StreamKind::kExecute, [weak = weak_from_this()](DrainStage stage) {
        if (const auto stream = weak.lock()) stream->Hear(stage);
      });
  membership_ = std::move(joined.membership);
  Hear(joined.stage);
}

void ExecuteStream::Hear(DrainStage stage) {
  std::unique_lock lock(mutex_);
  closed_ |= stage == DrainStage::kClosed;
  Step(std::move(lock));
}

void ExecuteStream::OnReadDone(bool ok) {
  std::unique_lock lock(mutex_);
  half_closed_ |= !ok;
  // Once nothing runs behind a closed gate the end of the stream is the answer.
  if (ok && !cancelled_ && (!closed_ || running_ > 0)) {
    call_.AddReceived(static_cast<int64_t>(incoming_.ByteSizeLong()));
    if (incoming_.has_cancel()) {
      StreamSlot* const slot = slots_.Find(incoming_.id());
      lock.unlock();
      // The slot is not used again meanwhile: that takes a message, and no other
      // is read while reading_ is set.
      if (slot != nullptr) {
        slot->task->Cancel(ReasonError(Reason::kCancelled, "cancelled by the client"));
      }
      lock.lock();
    } else {
      StreamSlot& slot = slots_.Take(incoming_);
      slot.answer.set_id(slot.request.id());
      if (const absl::Status admitted = Admit(slot); admitted.ok()) {
        lock.unlock();
        Execute(slot);
        lock.lock();
      } else {
        Enqueue(slot, admitted);
      }
    }
  }
  reading_ = false;
  Step(std::move(lock));
}

absl::Status ExecuteStream::Admit(StreamSlot& slot) {
  const double timeout = slot.request.timeout_seconds();
  // First: whatever else is wrong, this is not the answer of the one under way.
  if (slots_.Find(slot.request.id()) != nullptr) {
    slot.answer.set_duplicate_id(true);
    return FieldError({"id", absl::StrCat(slot.request.id()), "one that no request under way has"},
                      Reason::kDuplicateId,
                      absl::StrCat("id: ", slot.request.id(), " is that of a request under way"));
  }
  if (closed_) {
    return ReasonError(Reason::kDraining, "the daemon is shutting down and takes no new requests");
  }
  if (!slot.request.has_execute()) {
    // Also what a newer client may send instead: to this daemon nothing is set.
    return FieldError({"message"}, Reason::kFieldMissing,
                      "one of `execute` and `cancel` must be set");
  }
  if (!std::isfinite(timeout) || timeout < 0) {
    return FieldError({"timeout_seconds", absl::StrCat(timeout), "finite and at least 0"},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("timeout_seconds: ", timeout, " must be finite and at least 0"));
  }
  TETRAD_CHECK(slots_.Name(slot));
  slot.task.emplace(service_, call_.client(), flow_);
  ++running_;
  return absl::OkStatus();
}

void ExecuteStream::Execute(StreamSlot& slot) {
  absl::Time deadline = ToTime(context_.raw_deadline());
  if (const double timeout = slot.request.timeout_seconds(); timeout > 0) {
    deadline = std::min(deadline, absl::Now() + absl::Seconds(timeout));
  }
  slot.task->Start(slot.request.execute(), deadline, *slot.answer.mutable_response(),
                   [this, &slot](const absl::Status& status) { Answered(slot, status); });
}

void ExecuteStream::Answered(StreamSlot& slot, const absl::Status& status) {
  std::unique_lock lock(mutex_);
  --running_;
  Enqueue(slot, status);
  Step(std::move(lock));
}

void ExecuteStream::Enqueue(StreamSlot& slot, const absl::Status& status) {
  slots_.DropRequest(slot);
  if (!status.ok()) {
    google::rpc::Status told = ToRpcStatus(status);
    call_.Report(grpc::Status(static_cast<grpc::StatusCode>(told.code()), told.message()));
    slot.answer.clear_response();
    slot.answer.set_code(told.code());
    slot.answer.set_message(told.message());
    slot.answer.mutable_details()->Swap(told.mutable_details());
  }
  service_.metrics.StreamAnswered(static_cast<grpc::StatusCode>(slot.answer.code()));
  slots_.ready.push_back(&slot);
}

void ExecuteStream::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  slots_.Free(*std::exchange(writing_, nullptr));
  stalled_ |= !call_.ClientMoved();
  if (!ok || stalled_) return GiveUp(std::move(lock));
  // StartWrite() copies the whole answer, which is not for this thread.
  const bool large = !slots_.ready.empty() && slots_.ready.front()->answer.ByteSizeLong() >
                                                  static_cast<size_t>(kCopyHereBytes);
  if (large && service_.replies.Post([stream = shared_from_this()] {
        stream->Step(std::unique_lock(stream->mutex_));
      })) {
    return;
  }
  Step(std::move(lock));
}

void ExecuteStream::OnCancel() { GiveUp(std::unique_lock(mutex_)); }

void ExecuteStream::GiveUp(std::unique_lock<std::mutex> lock) {
  cancelled_ = true;  // from here on no slot is used again
  ++acting_;
  const std::vector<StreamSlot*> slots = slots_.Named();
  lock.unlock();
  for (StreamSlot* slot : slots) slot->task->Cancel(CancelledStatus(context_));
  lock.lock();
  --acting_;
  Step(std::move(lock));
}

// What the stream ends with, if it has come to its end.
std::optional<absl::Status> ExecuteStream::Ending() {
  if (!slots_.empty() || acting_ > 0) return std::nullopt;
  if (stalled_) return call_.Stalled();
  if (cancelled_) return CancelledStatus(context_);
  if (half_closed_) return absl::OkStatus();
  if (closed_) return ReasonError(Reason::kDraining, "the daemon is shutting down");
  return std::nullopt;
}

// Starts the next write and the next read, or the end. The RPC library is
// called without the lock, because it may call back at once; meanwhile `acting_`
// keeps others from ending the stream.
void ExecuteStream::Step(std::unique_lock<std::mutex> lock) {
  while (!finished_) {
    while (cancelled_ && !slots_.ready.empty()) {
      slots_.Free(*slots_.ready.front());
      slots_.ready.pop_front();
    }
    if (const std::optional<absl::Status> end = Ending(); end.has_value()) {
      finished_ = true;
      lock.unlock();
      return Finish(call_.End(*end));
    }
    StreamSlot* write = nullptr;
    int64_t bytes = 0;
    if (writing_ == nullptr && !slots_.ready.empty()) {
      writing_ = write = slots_.ready.front();
      slots_.ready.pop_front();
      // From here on the client may have the answer, and use the id again.
      slots_.Forget(*write);
      bytes = static_cast<int64_t>(write->answer.ByteSizeLong());
      call_.AddSent(bytes);
    }
    const bool read =
        !reading_ && !half_closed_ && !cancelled_ && !slots_.full() && (!closed_ || running_ > 0);
    if (write == nullptr && !read) return;
    reading_ |= read;
    ++acting_;
    lock.unlock();
    if (write != nullptr) {
      call_.AwaitClient(bytes);
      StartWrite(&write->answer);
    }
    if (read) StartRead(&incoming_);
    lock.lock();
    --acting_;
  }
}

void ExecuteStream::OnDone() {
  const std::shared_ptr<ExecuteStream> self = std::move(self_);
  call_.StopWaiting();
  membership_ = OpenStreams::Membership();
}

}  // namespace

Reactor* StartExecuteStream(const ServiceContext& service, grpc::CallbackServerContext& context) {
  const auto stream = std::make_shared<ExecuteStream>(service, context);
  stream->Start();
  return stream.get();
}

}  // namespace tetrad
