// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_task.h"

#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {

// What the engine's callback may touch after the task itself is gone.
struct ExecuteTask::Link {
  std::mutex mutex;
  Phase phase = Phase::kSubmitting;       // guarded by mutex
  std::optional<absl::Status> cancelled;  // guarded by mutex
  ExecutionId id{};                       // guarded by mutex
  std::optional<Result> early;            // came while submitting; guarded by mutex
  ExecuteTask* task = nullptr;            // valid while phase is not kEnded
};

ExecuteTask::ExecuteTask(const ServiceContext& service, const std::string& client, Flow flow,
                         Admission admission)
    : service_(service),
      client_(client),
      flow_(flow),
      admission_(std::move(admission)),
      link_(std::make_shared<Link>()) {
  link_->task = this;
}

ExecuteTask::~ExecuteTask() { ReturnBytes(); }

void ExecuteTask::ReturnBytes() { service_.call_bytes.Give(std::exchange(taken_bytes_, 0)); }

absl::Status ExecuteTask::TakeBytes(int64_t bytes) {
  TETRAD_RETURN_IF_ERROR(TakeCallBytes(service_, bytes));
  taken_bytes_ += bytes;
  return absl::OkStatus();
}

void ExecuteTask::Start(const v1::ExecuteRequest& request, absl::Time deadline,
                        v1::ExecuteResponse& reply, Done done) {
  request_ = &request;
  deadline_ = deadline;
  reply_ = &reply;
  done_ = std::move(done);
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  const absl::Status taken = TakeBytes(bytes);
  if (!taken.ok()) return Refuse(taken);
  if (!request.has_plan() || bytes > kCopyHereBytes) return SubmitLater();
  // A thread that spins did the same a moment ago and has code and data in its
  // caches, the driver's for a launch included; this one most likely has not.
  // That goes for the tables in which a plan is looked up, too.
  if (service_.replies.PostToSpinning([this] { SubmitSmall(); })) return;
  SubmitSmall();
}

// Neither a thread that answers others nor one of the RPC library builds a plan.
void ExecuteTask::SubmitSmall() {
  if (service_.engine.MustBuild(client_, request_->plan())) return SubmitLater();
  Submit();
}

void ExecuteTask::SubmitLater() {
  if (!service_.work.Post([this] { Submit(); })) Refuse(PoolFull(service_.work));
}

void ExecuteTask::Refuse(const absl::Status& status) {
  {
    std::lock_guard lock(link_->mutex);
    link_->phase = Phase::kEnded;
  }
  End(status);
}

absl::Status ExecuteTask::Hand(ExecutionId* id) {
  DecodedExecute decoded;
  TETRAD_RETURN_IF_ERROR(Decode(*request_, decoded));
  decoded.request.client = client_;
  decoded.request.flow = flow_;
  decoded.request.deadline = SteadyInstant(deadline_);
  // Before it runs: what has been computed is not to be refused for want of memory.
  decoded.request.reserve = [this](int64_t output_bytes) {
    if (admission_.reserve) TETRAD_RETURN_IF_ERROR(admission_.reserve(output_bytes));
    return TakeBytes(2 * output_bytes);  // in the reply, and as the RPC library sends it
  };
  *id = service_.engine.Execute(
      decoded.request, [link = link_](Result result) { Completed(link, std::move(result)); });
  if (*id != ExecutionId::kNone && admission_.admitted) admission_.admitted();
  return absl::OkStatus();
}

void ExecuteTask::Submit() {
  const std::shared_ptr<Link> link = link_;
  Engine& engine = service_.engine;
  bool handed = false;
  {
    std::lock_guard lock(link->mutex);
    if (link->cancelled.has_value()) link->early = *link->cancelled;
    handed = !link->early.has_value();
  }
  ExecutionId id{};
  if (handed) {
    const absl::Status status = Guarded([&] { return Hand(&id); });
    if (!status.ok()) Completed(link, status);
  }
  std::optional<absl::Status> cancelled;
  {
    std::lock_guard lock(link->mutex);
    link->id = id;
    if (!link->early.has_value()) cancelled = link->cancelled;
    link->phase = cancelled.has_value()     ? Phase::kEnded
                  : link->early.has_value() ? Phase::kReplying
                                            : Phase::kRunning;
    // From here on a running one may end, and be gone, at any moment.
    if (link->phase == Phase::kRunning) return;
  }
  if (cancelled.has_value()) {
    engine.Cancel(id);
    End(*cancelled);
  } else {
    Reply(*std::move(link->early));
  }
}

void ExecuteTask::Completed(const std::shared_ptr<Link>& link, Result result) {
  {
    std::lock_guard lock(link->mutex);
    if (link->phase == Phase::kSubmitting) {
      link->early = std::move(result);
      return;
    }
    if (link->phase != Phase::kRunning) return;
    link->phase = Phase::kReplying;
  }
  ExecuteTask* const task = link->task;
  auto held = std::make_shared<Result>(std::move(result));
  if (!task->service_.replies.Post([task, held] { task->Reply(std::move(*held)); })) {
    task->End(PoolFull(task->service_.replies));
  }
}

void ExecuteTask::Cancel(const absl::Status& status) {
  Engine& engine = service_.engine;
  ExecutionId id{};
  {
    std::lock_guard lock(link_->mutex);
    link_->cancelled = status;
    if (link_->phase != Phase::kRunning) return;
    link_->phase = Phase::kEnded;
    id = link_->id;
  }
  engine.Cancel(id);
  End(status);
}

absl::Status ExecuteTask::Fill(const Executed& executed, std::string weights) {
  std::string& output = *reply_->mutable_output();
  output.resize(static_cast<size_t>(executed.output_bytes()));
  TETRAD_RETURN_IF_ERROR(executed.CopyOutput(std::as_writable_bytes(std::span(output))));
  ToProto(executed.timings(), executed.share(), *reply_->mutable_timings());
  reply_->set_weights(std::move(weights));
  reply_->set_kernel(executed.plan().kernel);
  reply_->set_floor_us(executed.plan().floor.floor_us());
  return absl::OkStatus();
}

void ExecuteTask::Reply(Result result) {
  absl::Status status = result.status();
  if (status.ok()) {
    status = Guarded([&] {
      std::string weights = result->weights();
      service_.metrics.Executed(result->timings(), result->plan().floor.floor_us(), weights);
      return Fill(*result, std::move(weights));
    });
  }
  // The staging memory is free for the next request before this one's reply is
  // on its way.
  result = absl::CancelledError();
  if (!status.ok()) reply_->Clear();
  End(status);
}

void ExecuteTask::End(const absl::Status& status) {
  Done done = std::move(done_);
  done(status);
}

}  // namespace tetrad
