// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/upload_call.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/steady_clock.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"
#include "server/stream_turn.h"

namespace tetrad {
namespace {

// Whether an upload with a key is kept when its stream ends so.
bool IsKeptAfter(const absl::Status& status) {
  return !absl::IsInvalidArgument(status) && !absl::IsNotFound(status) &&
         !absl::IsInternal(status) && !absl::IsDataLoss(status);
}

class UploadCall final : public grpc::ServerReadReactor<v1::UploadRequest>,
                         public std::enable_shared_from_this<UploadCall> {
 public:
  UploadCall(const ServiceContext& service, OpenUploads& uploads, StepAlarm& expiry,
             grpc::CallbackServerContext& context, v1::UploadResponse& response)
      : service_(service),
        uploads_(uploads),
        expiry_(expiry),
        context_(context),
        response_(response),
        call_(service, Method::kUpload, context) {}

  void Start() {
    self_ = shared_from_this();
    call_.OnStalled([this] {
      // Nobody's any more while it is destroyed, which waits for this.
      const auto self = weak_from_this().lock();
      if (self == nullptr || !turn_.EndFromOutside(call_.StalledStatus())) return;
      Finished(call_.Stalled());
    });
    call_.admission().ok() ? Read() : End(call_.admission());
  }
  void EndFromOutside(const absl::Status& why) {
    if (turn_.EndFromOutside(why)) Finished(why);
  }
  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  void Read();
  void Took(const absl::Status& status);
  absl::Status Take();
  absl::Status Begin(const v1::UploadHeader& header);
  absl::Status Attach(WeightsSpec spec);
  absl::Status Write(const v1::UploadChunk& chunk);
  void StreamEnded();
  absl::Status Complete();
  absl::StatusOr<WeightsInfo> Sealed();
  void Answer(v1::WeightsInfo weights);
  void End(const absl::Status& status);
  void Finished(const absl::Status& status);
  bool begun() const { return version_.has_value() || hold_.upload != nullptr; }
  WeightsRegistry& registry() { return service_.engine.weights(); }

  const ServiceContext& service_;
  OpenUploads& uploads_;
  StepAlarm& expiry_;
  const grpc::CallbackServerContext& context_;
  v1::UploadResponse& response_;
  Call call_;
  std::shared_ptr<UploadCall> self_;  // until OnDone()
  StreamTurn turn_;
  v1::UploadRequest message_;
  std::string name_;
  std::optional<int64_t> version_;  // begun without a key, and not abandoned
  OpenUploads::Hold hold_;          // with a key
  bool answered_ = false;           // it was complete before
  bool seal_ = false;
  bool sealed_ = false;
};

void UploadCall::OnReadDone(bool ok) {
  const auto self = shared_from_this();
  if (!turn_.Take()) return;
  (void)call_.ClientMoved();  // too late by a hair: NextRead() will say so
  if (!ok) return StreamEnded();
  call_.AddReceived(static_cast<int64_t>(message_.ByteSizeLong()));
  // What the stream before this one is copying or sealing is waited for.
  if (message_.has_header() && !message_.header().upload_key().empty()) {
    if (!service_.work.Post([this] { Took(Guarded([this] { return Take(); })); })) {
      End(PoolFull(service_.work));
    }
    return;
  }
  Took(Guarded([this] { return Take(); }));
}

void UploadCall::Took(const absl::Status& status) {
  const auto self = shared_from_this();
  !status.ok() || answered_ ? End(status) : Read();
}

void UploadCall::Read() {
  const auto self = shared_from_this();
  call_.AwaitClient();
  const std::optional<absl::Status> end = turn_.NextRead([this] { StartRead(&message_); });
  if (end.has_value()) Finished(*end);
}

absl::Status UploadCall::Take() {
  switch (message_.message_case()) {
    case v1::UploadRequest::kHeader:
      return Begin(message_.header());
    case v1::UploadRequest::kChunk:
      return Write(message_.chunk());
    case v1::UploadRequest::MESSAGE_NOT_SET:
      break;
  }
  return FieldError({"message"}, Reason::kFieldMissing,
                    "an upload message must have `header` or `chunk`");
}

absl::Status UploadCall::Begin(const v1::UploadHeader& header) {
  if (begun()) {
    return FieldError({"header"}, Reason::kFieldConflict,
                      "header: a stream has one, and it comes first");
  }
  TETRAD_ASSIGN_OR_RETURN(WeightsSpec spec,
                          FromProto(header, service_.engine.options().weights.max_groups));
  name_ = spec.name;
  seal_ = header.seal();
  if (!header.upload_key().empty()) return Attach(std::move(spec));
  TETRAD_ASSIGN_OR_RETURN(version_, registry().Begin(std::move(spec)));
  return absl::OkStatus();
}

absl::Status UploadCall::Attach(WeightsSpec spec) {
  const std::string& key = message_.header().upload_key();
  TETRAD_RETURN_IF_ERROR(ValidateKey("header.upload_key", key));
  auto taken_over = [weak = weak_from_this()] {
    if (const auto call = weak.lock()) {
      call->EndFromOutside(
          ReasonError(Reason::kTakenOver, "header.upload_key: a newer stream goes on with it"));
    }
  };
  auto attached = uploads_.Attach({.client = call_.client(), .name = name_, .key = key},
                                  message_.header().SerializeAsString(), spec,
                                  std::move(taken_over), SteadyNow());
  if (!attached.ok()) {
    expiry_.Arm(uploads_.Step(SteadyNow()));
    return attached.status();
  }
  hold_ = std::move(attached->hold);
  answered_ = attached->answer.has_value();
  if (answered_) Answer(*std::move(attached->answer));
  return absl::OkStatus();
}

absl::Status UploadCall::Write(const v1::UploadChunk& chunk) {
  if (!begun()) return FieldError({"chunk"}, Reason::kFieldConflict, "chunk: before the header");
  TETRAD_ASSIGN_OR_RETURN(const WeightsOperand operand, FromProto(chunk.operand()));
  if (hold_.upload != nullptr) {
    return uploads_.Write(hold_, operand, chunk.offset(), std::as_bytes(std::span(chunk.data())));
  }
  return registry().Write(name_, *version_, operand, chunk.offset(),
                          std::as_bytes(std::span(chunk.data())));
}

void UploadCall::StreamEnded() {
  if (context_.IsCancelled()) return End(CancelledStatus(context_));
  if (!begun()) {
    return End(FieldError({"header"}, Reason::kFieldMissing, "the stream ended before a header"));
  }
  const bool posted = service_.work.Post([this] {
    const auto self = shared_from_this();
    End(Guarded([this] { return Complete(); }));
  });
  if (!posted) End(PoolFull(service_.work));
}

absl::StatusOr<WeightsInfo> UploadCall::Sealed() {
  if (hold_.upload != nullptr) return uploads_.Complete(hold_, seal_, SteadyNow());
  if (seal_) return registry().Seal(name_, *version_);
  absl::StatusOr<WeightsInfo> info = registry().Find(name_, *version_);
  if (info.ok()) return info;
  return ReasonError(Reason::kStaleHandle, absl::StrCat("weights ", name_, "@", *version_,
                                                        " were dropped during the upload"));
}

void UploadCall::Answer(v1::WeightsInfo weights) {
  *response_.mutable_weights() = std::move(weights);
  call_.AddSent(static_cast<int64_t>(response_.ByteSizeLong()));
}

absl::Status UploadCall::Complete() {
  TETRAD_ASSIGN_OR_RETURN(const WeightsInfo info, Sealed());
  sealed_ = info.sealed;
  v1::WeightsInfo weights;
  ToProto(info, weights);
  Answer(std::move(weights));
  service_.log.Info("weights uploaded", {{"client", call_.client()},
                                         {"request", call_.request()},
                                         {"trace_id", call_.caller().trace.trace_id},
                                         {"span_id", call_.caller().trace.span_id},
                                         {"name", name_},
                                         {"version", info.version},
                                         {"bytes", info.bytes},
                                         {"sealed", sealed_}});
  return absl::OkStatus();
}

void UploadCall::End(const absl::Status& status) {
  turn_.Finish();
  Finished(status);
}

void UploadCall::Finished(const absl::Status& status) {
  if (hold_.upload != nullptr) {
    const Instant now = SteadyNow();
    uploads_.Detach(hold_, IsKeptAfter(status), now);
    expiry_.Arm(uploads_.Step(now));
  }
  const grpc::Status ended = call_.End(status);  // not `status` if the credential is withdrawn
  if (!ended.ok() && version_.has_value() && !sealed_) {
    registry().Abandon(name_, *std::exchange(version_, std::nullopt));
  }
  Finish(ended);
}

void UploadCall::OnDone() {
  // A connection that breaks may look like the end of the stream at first; only
  // now it is known whether the client got its answer.
  if (version_.has_value() && !sealed_ && context_.IsCancelled()) {
    registry().Abandon(name_, *version_);
  }
  call_.StopWaiting();
  const std::shared_ptr<UploadCall> self = std::move(self_);
}

}  // namespace

grpc::ServerReadReactor<v1::UploadRequest>* StartUpload(const ServiceContext& service,
                                                        OpenUploads& uploads, StepAlarm& expiry,
                                                        grpc::CallbackServerContext& context,
                                                        v1::UploadResponse& response) {
  const auto call = std::make_shared<UploadCall>(service, uploads, expiry, context, response);
  call->Start();
  return call.get();
}

}  // namespace tetrad
