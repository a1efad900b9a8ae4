// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/block_write_call.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

class BlockWriteCall final : public grpc::ServerReadReactor<v1::WriteRequest> {
 public:
  BlockWriteCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                 v1::WriteResponse& response)
      : service_(service),
        context_(context),
        response_(response),
        call_(service, Method::kWrite, context) {
    call_.OnStalled([this] { End(call_.Stalled()); });
    if (call_.admission().ok()) {
      Read();
    } else {
      End(call_.admission());
    }
  }

  void OnReadDone(bool ok) override;
  void OnDone() override {
    service_.call_bytes.Give(taken_bytes_);
    delete this;
  }

 private:
  void Read() {
    call_.AwaitClient();
    StartRead(&message_);
  }
  void Take();
  absl::Status Write();
  absl::Status Begin();
  void StreamEnded();
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  v1::WriteResponse& response_;
  Call call_;
  v1::WriteRequest message_;
  int64_t taken_bytes_ = 0;  // of call_bytes, for message_
  BlockInfo block_;          // empty name: not yet told
  int64_t begin_ = 0;
  int64_t written_ = 0;
};

void BlockWriteCall::OnReadDone(bool ok) {
  if (!call_.ClientMoved()) return;  // ended already
  if (!ok) return StreamEnded();
  const auto bytes = static_cast<int64_t>(message_.ByteSizeLong());
  call_.AddReceived(bytes);
  if (const absl::Status status = TakeCallBytes(service_, bytes); !status.ok()) return End(status);
  taken_bytes_ = bytes;
  if (bytes <= kCopyHereBytes) return Take();
  if (service_.work.Post([this] { Take(); })) return;
  // What is half way goes on, at worst on this thread.
  written_ > 0 ? Take() : End(PoolFull(service_.work));
}

void BlockWriteCall::Take() {
  const absl::Status status = Guarded([this] { return Write(); });
  if (!status.ok()) return End(status);
  if (taken_bytes_ > kCopyHereBytes) message_ = {};  // a stream that idles holds little
  service_.call_bytes.Give(std::exchange(taken_bytes_, 0));
  Read();
}

absl::Status BlockWriteCall::Write() {
  if (block_.block.empty()) {
    TETRAD_RETURN_IF_ERROR(Begin());
  } else if (!message_.block().empty() || message_.offset() != 0) {
    return absl::InvalidArgumentError("block and offset: only the first message has them");
  }
  const auto bytes = static_cast<int64_t>(message_.data().size());
  if (bytes == 0) return absl::OkStatus();
  const int64_t at = begin_ + written_;
  if (bytes > block_.bytes - at) {
    return absl::InvalidArgumentError(absl::StrCat("data: ", bytes, " bytes at offset ", at,
                                                   " end beyond the block's ", block_.bytes));
  }
  TETRAD_RETURN_IF_ERROR(service_.engine.Write(call_.client(), block_.block, at,
                                               std::as_bytes(std::span(message_.data()))));
  written_ += bytes;
  return absl::OkStatus();
}

absl::Status BlockWriteCall::Begin() {
  TETRAD_RETURN_IF_ERROR(ValidateReference("block", message_.block()));
  TETRAD_ASSIGN_OR_RETURN(block_, service_.engine.FindBlock(call_.client(), message_.block()));
  begin_ = message_.offset();
  if (begin_ >= 0 && begin_ <= block_.bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offset: ", begin_, " is not in [0, ", block_.bytes, "]"));
}

void BlockWriteCall::StreamEnded() {
  if (context_.IsCancelled()) return End(CancelledStatus(context_));
  if (block_.block.empty()) {
    return End(absl::InvalidArgumentError("the stream ended before its first message"));
  }
  response_.set_bytes(written_);
  End(absl::OkStatus());
}

}  // namespace

grpc::ServerReadReactor<v1::WriteRequest>* StartBlockWrite(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           v1::WriteResponse& response) {
  return new BlockWriteCall(service, context, response);
}

}  // namespace tetrad
