// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/upload_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

class UploadCall final : public grpc::ServerReadReactor<v1::UploadRequest> {
 public:
  UploadCall(const ServiceContext& service, grpc::CallbackServerContext& context,
             v1::UploadResponse& response)
      : service_(service),
        context_(context),
        response_(response),
        call_(service, Method::kUpload, context) {
    call_.OnStalled([this] { End(call_.Stalled()); });
    if (call_.admission().ok()) {
      Read();
    } else {
      End(call_.admission());
    }
  }

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  void Read() {
    call_.AwaitClient();
    StartRead(&message_);
  }
  absl::Status Take();
  absl::Status Begin(const v1::UploadHeader& header);
  absl::Status Write(const v1::UploadChunk& chunk);
  void StreamEnded();
  absl::Status Complete();
  void End(const absl::Status& status);
  WeightsRegistry& registry() { return service_.engine.weights(); }

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  v1::UploadResponse& response_;
  Call call_;
  v1::UploadRequest message_;
  std::string name_;
  std::optional<int64_t> version_;  // begun and not abandoned
  bool seal_ = false;
  bool sealed_ = false;
};

void UploadCall::OnReadDone(bool ok) {
  if (!call_.ClientMoved()) return;  // ended already
  if (!ok) return StreamEnded();
  call_.AddReceived(static_cast<int64_t>(message_.ByteSizeLong()));
  const absl::Status status = Guarded([this] { return Take(); });
  if (status.ok()) {
    Read();
  } else {
    End(status);
  }
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
  return absl::InvalidArgumentError("an upload message must have `header` or `chunk`");
}

absl::Status UploadCall::Begin(const v1::UploadHeader& header) {
  if (version_.has_value()) {
    return absl::InvalidArgumentError("header: a stream has one, and it comes first");
  }
  TETRAD_ASSIGN_OR_RETURN(WeightsSpec spec,
                          FromProto(header, service_.engine.options().weights.max_groups));
  name_ = spec.name;
  seal_ = header.seal();
  TETRAD_ASSIGN_OR_RETURN(version_, registry().Begin(std::move(spec)));
  return absl::OkStatus();
}

absl::Status UploadCall::Write(const v1::UploadChunk& chunk) {
  if (!version_.has_value()) return absl::InvalidArgumentError("chunk: before the header");
  TETRAD_ASSIGN_OR_RETURN(const WeightsOperand operand, FromProto(chunk.operand()));
  return registry().Write(name_, *version_, operand, chunk.offset(),
                          std::as_bytes(std::span(chunk.data())));
}

void UploadCall::StreamEnded() {
  if (context_.IsCancelled()) return End(CancelledStatus(context_));
  if (!version_.has_value()) {
    return End(absl::InvalidArgumentError("the stream ended before a header"));
  }
  const bool posted = service_.work.Post([this] { End(Guarded([this] { return Complete(); })); });
  if (!posted) End(PoolFull(service_.work));
}

absl::Status UploadCall::Complete() {
  WeightsInfo info;
  if (seal_) {
    TETRAD_ASSIGN_OR_RETURN(info, registry().Seal(name_, *version_));
    sealed_ = true;
  } else {
    const std::vector<WeightsInfo> all = registry().List();
    const auto found = std::ranges::find_if(all, [this](const WeightsInfo& other) {
      return other.spec.name == name_ && other.version == *version_;
    });
    if (found == all.end()) {
      return absl::AbortedError(
          absl::StrCat("weights ", name_, "@", *version_, " were dropped during the upload"));
    }
    info = *found;
  }
  ToProto(info, *response_.mutable_weights());
  call_.AddSent(static_cast<int64_t>(response_.ByteSizeLong()));
  service_.log.Info("weights uploaded", {{"client", call_.client()},
                                         {"request", call_.request()},
                                         {"name", name_},
                                         {"version", info.version},
                                         {"bytes", info.bytes},
                                         {"sealed", sealed_}});
  return absl::OkStatus();
}

void UploadCall::End(const absl::Status& status) {
  if (!status.ok() && version_.has_value() && !sealed_) {
    registry().Abandon(name_, *std::exchange(version_, std::nullopt));
  }
  Finish(call_.End(status));
}

void UploadCall::OnDone() {
  // A connection that breaks may look like the end of the stream at first; only
  // now it is known whether the client got its answer.
  if (version_.has_value() && !sealed_ && context_.IsCancelled()) {
    registry().Abandon(name_, *version_);
  }
  delete this;
}

}  // namespace

grpc::ServerReadReactor<v1::UploadRequest>* StartUpload(const ServiceContext& service,
                                                        grpc::CallbackServerContext& context,
                                                        v1::UploadResponse& response) {
  return new UploadCall(service, context, response);
}

}  // namespace tetrad
