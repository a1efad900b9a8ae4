// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/attachment.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

#include "clients/cpp/connection.h"

namespace tetrad {

class Attachment::Stream final : public grpc::ClientReadReactor<v1::AttachEvent> {
 public:
  explicit Stream(std::shared_ptr<Client::Connection> connection)
      : connection_(std::move(connection)) {}

  void Start(const std::string& resume, const CallOptions& call) {
    request_.set_resume(resume);
    AddMetadata(call, *connection_->token, context_);
    connection_->memory.async()->Attach(&context_, &request_, this);
    StartRead(&incoming_);
    StartCall();
  }

  // Until the first event came or the stream ended.
  absl::Status WaitForLease(absl::Duration limit, const std::stop_token& cancel) {
    const std::stop_callback stop(cancel, [this] { context_.TryCancel(); });
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoMicroseconds(limit),
                           [this] { return first_.has_value() || ended_.has_value(); })) {
      return absl::DeadlineExceededError("no lease within the deadline");
    }
    return first_.has_value() ? absl::OkStatus() : *ended_;
  }

  void Close() {
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      std::lock_guard lock(mutex_);
      if (!first_.has_value()) first_ = incoming_;
      draining_ |= incoming_.draining();
    }
    changed_.notify_all();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard lock(mutex_);
      ended_ = status.ok() ? absl::CancelledError("the lease was ended") : FromGrpcStatus(status);
    }
    lost_.request_stop();
    // Last: whoever waits for it may destroy this.
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  // Valid and constant once WaitForLease() returned OK.
  const v1::AttachEvent& first() const { return *first_; }
  bool draining() const {
    std::lock_guard lock(mutex_);
    return draining_;
  }
  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return connection_->Named(ended_.value_or(absl::OkStatus()));
  }
  std::stop_token lost() const { return lost_.get_token(); }

 private:
  const std::shared_ptr<Client::Connection> connection_;
  grpc::ClientContext context_;
  v1::AttachRequest request_;
  v1::AttachEvent incoming_;
  std::stop_source lost_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::AttachEvent> first_;  // guarded by mutex_
  std::optional<absl::Status> ended_;     // guarded by mutex_
  bool draining_ = false;                 // guarded by mutex_
  bool done_ = false;                     // guarded by mutex_
};

absl::StatusOr<std::unique_ptr<Attachment>> Attachment::Open(
    std::shared_ptr<Client::Connection> connection, const std::string& resume,
    const CallOptions& call) {
  std::shared_ptr<Stream> held;
  const absl::Status status = connection->Repeated(
      Rpc::kAttach, call, connection->options.deadline, [&](absl::Time deadline) -> Attempted {
        auto stream = std::make_shared<Stream>(connection);
        stream->Start(resume, call);
        const absl::Status status = stream->WaitForLease(deadline - absl::Now(), call.cancel);
        if (!status.ok()) {
          stream->Close();
          return {status};
        }
        held = std::move(stream);
        return {absl::OkStatus()};
      });
  if (!status.ok()) return status;
  return std::unique_ptr<Attachment>(new Attachment(std::move(held)));
}

Attachment::Attachment(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
Attachment::~Attachment() { stream_->Close(); }

const std::string& Attachment::lease() const { return stream_->first().lease(); }
absl::Duration Attachment::grace() const { return absl::Seconds(stream_->first().grace_seconds()); }
bool Attachment::resumed() const { return stream_->first().resumed(); }
bool Attachment::draining() const { return stream_->draining(); }
absl::Status Attachment::status() const { return stream_->status(); }
std::stop_token Attachment::lost() const { return stream_->lost(); }

}  // namespace tetrad
