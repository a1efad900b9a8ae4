// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/load_call.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/checkpoint_load.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);

class LoadCall final : public grpc::ServerWriteReactor<v1::LoadProgress> {
 public:
  LoadCall(const ServiceContext& service, grpc::CallbackServerContext& context,
           const v1::LoadRequest& request)
      : service_(service),
        context_(context),
        request_(request),
        call_(service, Method::kLoad, context) {
    call_.AddReceived(static_cast<int64_t>(request_.ByteSizeLong()));
    if (!call_.admission().ok()) {
      Finish(call_.End(call_.admission()));
    } else if (!service_.loads.Post([this] { Run(); })) {
      Finish(call_.End(PoolFull(service_.loads)));
    }
  }

  void OnWriteDone(bool) override;
  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  void OnDone() override { delete this; }

 private:
  void Run();
  absl::Status Load(v1::LoadProgress& last);
  bool Observe(int64_t bytes_done, int64_t bytes_total);
  void Step(std::unique_lock<std::mutex> lock);

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  const v1::LoadRequest& request_;
  Call call_;
  std::atomic<bool> cancelled_{false};
  std::chrono::steady_clock::time_point next_progress_{};  // of the load's thread

  std::mutex mutex_;
  v1::LoadProgress writing_message_;         // stable while writing_
  std::optional<v1::LoadProgress> waiting_;  // guarded by mutex_
  std::optional<absl::Status> end_;          // guarded by mutex_
  bool writing_ = false;                     // guarded by mutex_
  bool stalled_ = false;                     // guarded by mutex_
};

void LoadCall::Run() {
  v1::LoadProgress last;
  const absl::Status status = Guarded([&] { return Load(last); });
  std::unique_lock lock(mutex_);
  end_ = status;
  if (status.ok()) {
    waiting_ = std::move(last);
  } else {
    waiting_.reset();
  }
  Step(std::move(lock));
}

absl::Status LoadCall::Load(v1::LoadProgress& last) {
  TETRAD_RETURN_IF_ERROR(ValidateReference("name", request_.name()));
  TETRAD_ASSIGN_OR_RETURN(const Dialect dialect, FromProto(request_.dialect()));
  if (!service_.checkpoint_root.has_value()) {
    return ReasonError(
        Reason::kUnsupportedHere,
        "this daemon loads no checkpoints: it was started without --checkpoint-root");
  }
  const CheckpointSource source{request_.directory(), request_.pattern(), dialect,
                                request_.ignore_input_scales()};
  int64_t total_bytes = 0;
  absl::StatusOr<CheckpointWeights> loaded =
      LoadCheckpoint(*service_.checkpoint_root, source, request_.name(), service_.engine.weights(),
                     service_.load_team, [&](int64_t done, int64_t total) {
                       total_bytes = total;
                       return Observe(done, total);
                     });
  if (cancelled_.load(std::memory_order_relaxed) && absl::IsCancelled(loaded.status())) {
    return CancelledStatus(context_);
  }
  TETRAD_RETURN_IF_ERROR(loaded.status());
  last.set_bytes_done(total_bytes);
  last.set_bytes_total(total_bytes);
  ToProto(loaded->info, *last.mutable_weights());
  for (const std::string& note : loaded->notes) last.add_notes(note);
  service_.log.Info("weights loaded", {{"client", call_.client()},
                                       {"request", call_.request()},
                                       {"trace_id", call_.caller().trace.trace_id},
                                       {"span_id", call_.caller().trace.span_id},
                                       {"name", loaded->info.spec.name},
                                       {"version", loaded->info.version},
                                       {"source", loaded->info.spec.source},
                                       {"bytes", loaded->info.bytes}});
  return absl::OkStatus();
}

bool LoadCall::Observe(int64_t bytes_done, int64_t bytes_total) {
  if (cancelled_.load(std::memory_order_relaxed)) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_) return true;
  next_progress_ = now + kProgressInterval;
  std::unique_lock lock(mutex_);
  waiting_.emplace();
  waiting_->set_bytes_done(bytes_done);
  waiting_->set_bytes_total(bytes_total);
  Step(std::move(lock));
  return true;
}

void LoadCall::OnWriteDone(bool) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  stalled_ |= !call_.ClientMoved();
  Step(std::move(lock));
}

// Starts the next write, or the end, if neither is under way. The RPC library
// is called without the lock, because it may call back at once; `this` may be
// gone after Finish().
void LoadCall::Step(std::unique_lock<std::mutex> lock) {
  if (writing_) return;
  if (waiting_.has_value()) {
    writing_message_ = *std::exchange(waiting_, std::nullopt);
    writing_ = true;
    call_.AddSent(static_cast<int64_t>(writing_message_.ByteSizeLong()));
    lock.unlock();
    call_.AwaitClient();
    StartWrite(&writing_message_);
  } else if (end_.has_value()) {
    const absl::Status status = stalled_ ? call_.Stalled() : *std::move(end_);
    end_.reset();
    lock.unlock();
    Finish(call_.End(status));
  }
}

}  // namespace

grpc::ServerWriteReactor<v1::LoadProgress>* StartLoad(const ServiceContext& service,
                                                      grpc::CallbackServerContext& context,
                                                      const v1::LoadRequest& request) {
  return new LoadCall(service, context, request);
}

}  // namespace tetrad
