// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/attach_call.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

constexpr size_t kMostRequestBytes = 4096;

}  // namespace

class AttachCall final : public grpc::ServerWriteReactor<v1::AttachEvent>,
                         public std::enable_shared_from_this<AttachCall> {
 public:
  AttachCall(const ServiceContext& service, Attachments& attachments,
             grpc::CallbackServerContext& context)
      : service_(service),
        attachments_(attachments),
        context_(context),
        call_(service, Method::kAttach, context) {}

  void Start(const v1::AttachRequest& request);
  void Hear(DrainStage stage);
  // The lease has ended (OK), or is another stream's.
  void LoseLease(const absl::Status& why);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  absl::Status Attach(const v1::AttachRequest& request);
  void Step(std::unique_lock<std::mutex> lock);

  const ServiceContext& service_;
  Attachments& attachments_;
  const grpc::CallbackServerContext& context_;
  Call call_;
  std::shared_ptr<AttachCall> self_;  // until OnDone()
  LeaseInfo lease_;                   // empty name: none was got
  OpenStreams::Membership membership_;

  std::mutex mutex_;
  v1::AttachEvent event_;                    // stable while writing_
  DrainStage stage_ = DrainStage::kServing;  // guarded by mutex_
  bool told_ = false;                        // the first event; guarded by mutex_
  bool told_draining_ = false;               // guarded by mutex_
  std::optional<absl::Status> lost_lease_;   // guarded by mutex_
  bool cancelled_ = false;                   // guarded by mutex_
  bool stalled_ = false;                     // guarded by mutex_
  bool writing_ = false;                     // guarded by mutex_
  bool finished_ = false;                    // guarded by mutex_
};

void AttachCall::Start(const v1::AttachRequest& request) {
  self_ = shared_from_this();
  call_.AddReceived(static_cast<int64_t>(request.ByteSizeLong()));
  absl::Status status = call_.admission();
  if (status.ok()) status = Guarded([&] { return Attach(request); });
  std::unique_lock lock(mutex_);
  if (status.ok()) return Step(std::move(lock));
  finished_ = true;
  lock.unlock();
  Finish(call_.End(status));
}

absl::Status AttachCall::Attach(const v1::AttachRequest& request) {
  if (!request.resume().empty()) {
    TETRAD_RETURN_IF_ERROR(ValidateReference("resume", request.resume()));
  }
  // The library keeps the request as long as the call lasts, which may be days.
  if (const size_t bytes = request.ByteSizeLong(); bytes > kMostRequestBytes) {
    return FieldError({"request", absl::StrCat(bytes, " bytes"),
                       absl::StrCat("at most ", kMostRequestBytes, " bytes")},
                      Reason::kMessageTooLarge);
  }
  TETRAD_ASSIGN_OR_RETURN(lease_, service_.engine.Attach(call_.client(), request.resume()));
  call_.LeaveGate();
  attachments_.Add(lease_, shared_from_this());
  OpenStreams::Joined joined =
      service_.streams.Join(StreamKind::kAttach, [weak = weak_from_this()](DrainStage stage) {
        if (const auto call = weak.lock()) call->Hear(stage);
      });
  membership_ = std::move(joined.membership);
  // Whoever ended the lease before it was added above could not find this.
  const bool ended = !service_.engine.CheckLease(call_.client(), lease_.lease).ok();
  std::lock_guard lock(mutex_);
  if (ended && !lost_lease_.has_value()) lost_lease_ = absl::OkStatus();
  stage_ = std::max(stage_, joined.stage);
  return absl::OkStatus();
}

void AttachCall::Hear(DrainStage stage) {
  std::unique_lock lock(mutex_);
  stage_ = std::max(stage_, stage);
  Step(std::move(lock));
}

void AttachCall::LoseLease(const absl::Status& why) {
  std::unique_lock lock(mutex_);
  if (!lost_lease_.has_value()) lost_lease_ = why;
  Step(std::move(lock));
}

void AttachCall::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  stalled_ |= !call_.ClientMoved();
  cancelled_ |= !ok || stalled_;
  Step(std::move(lock));
}

void AttachCall::OnCancel() {
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  Step(std::move(lock));
}

// Starts the next write, or the end, if neither is under way. The RPC library
// is called without the lock, because it may call back at once.
void AttachCall::Step(std::unique_lock<std::mutex> lock) {
  if (writing_ || finished_) return;
  const bool draining = stage_ >= DrainStage::kAnnounced;
  if (!cancelled_ && !lost_lease_.has_value() && (!told_ || (draining && !told_draining_))) {
    told_ = true;
    told_draining_ = draining;
    event_.set_lease(lease_.lease);
    event_.set_grace_seconds(absl::ToDoubleSeconds(lease_.grace));
    event_.set_resumed(lease_.resumed);
    event_.set_draining(draining);
    call_.AddSent(static_cast<int64_t>(event_.ByteSizeLong()));
    writing_ = true;
    lock.unlock();
    call_.AwaitClient();
    return StartWrite(&event_);
  }
  if (!cancelled_ && !lost_lease_.has_value() && stage_ != DrainStage::kClosed) return;
  finished_ = true;
  const absl::Status status = stalled_     ? call_.Stalled()
                              : cancelled_ ? CancelledStatus(context_)
                              : lost_lease_.has_value()
                                  ? *lost_lease_
                                  : ReasonError(Reason::kDraining, "the daemon is shutting down");
  lock.unlock();
  Finish(call_.End(status));
}

void AttachCall::OnDone() {
  const std::shared_ptr<AttachCall> self = std::move(self_);
  call_.StopWaiting();
  membership_ = OpenStreams::Membership();
  if (lease_.lease.empty()) return;
  attachments_.Remove(lease_);
  service_.engine.Detach(lease_);
}

void Attachments::Add(const LeaseInfo& attachment, std::shared_ptr<AttachCall> call) {
  {
    std::lock_guard lock(mutex_);
    Holder& holder = holders_[attachment.lease];
    // Two that come at once may get here in another order than to the engine.
    if (holder.attachment < attachment.attachment) {
      holder.attachment = attachment.attachment;
      call = std::exchange(holder.call, std::move(call)).lock();
    }
  }
  if (call != nullptr) {
    call->LoseLease(
        ReasonError(Reason::kTakenOver, "lease: it was attached again, by a newer stream"));
  }
}

void Attachments::Remove(const LeaseInfo& attachment) {
  std::lock_guard lock(mutex_);
  const auto found = holders_.find(attachment.lease);
  if (found != holders_.end() && found->second.attachment == attachment.attachment) {
    holders_.erase(found);
  }
}

void Attachments::End(const std::string& lease) {
  std::shared_ptr<AttachCall> call;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = holders_.find(lease); found != holders_.end()) {
      call = found->second.call.lock();
    }
  }
  if (call != nullptr) call->LoseLease(absl::OkStatus());
}

grpc::ServerWriteReactor<v1::AttachEvent>* StartAttach(const ServiceContext& service,
                                                       Attachments& attachments,
                                                       grpc::CallbackServerContext& context,
                                                       const v1::AttachRequest& request) {
  const auto call = std::make_shared<AttachCall>(service, attachments, context);
  call->Start(request);
  return call.get();
}

}  // namespace tetrad
