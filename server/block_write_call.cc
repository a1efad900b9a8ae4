// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/block_write_call.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"
#include "server/stream_turn.h"

namespace tetrad {
namespace {

class BlockWriteCall final : public grpc::ServerReadReactor<v1::WriteRequest>,
                             public std::enable_shared_from_this<BlockWriteCall> {
 public:
  BlockWriteCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                 v1::WriteResponse& response)
      : service_(service),
        context_(context),
        response_(response),
        call_(service, Method::kWrite, context) {}

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
  void OnDone() override {
    call_.StopWaiting();
    const std::shared_ptr<BlockWriteCall> self = std::move(self_);
    service_.call_bytes.Give(taken_bytes_);
  }

 private:
  void Read();
  void Take();
  absl::Status Write();
  absl::Status Begin();
  absl::Status Join();
  absl::Status Copy(int64_t at);
  void StreamEnded();
  void End(const absl::Status& status) {
    turn_.Finish();
    Finished(status);
  }
  void Finished(const absl::Status& status) {
    if (keyed_ != nullptr) keyed_->Leave(joined_);
    Finish(call_.End(status));
  }

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  v1::WriteResponse& response_;
  Call call_;
  std::shared_ptr<BlockWriteCall> self_;  // until OnDone()
  StreamTurn turn_;
  v1::WriteRequest message_;
  int64_t taken_bytes_ = 0;  // of call_bytes, for message_
  BlockInfo block_;          // empty name: not yet told
  int64_t begin_ = 0;
  int64_t written_ = 0;
  std::shared_ptr<KeyedWrite> keyed_;  // null: the write has no key
  KeyedWrite::Turn joined_{};
};

void BlockWriteCall::Read() {
  const auto self = shared_from_this();
  call_.AwaitClient();
  const std::optional<absl::Status> end = turn_.NextRead([this] { StartRead(&message_); });
  if (end.has_value()) Finished(*end);
}

void BlockWriteCall::OnReadDone(bool ok) {
  const auto self = shared_from_this();
  if (!turn_.Take()) return;
  (void)call_.ClientMoved();  // too late by a hair: NextRead() will say so
  if (!ok) return StreamEnded();
  const auto bytes = static_cast<int64_t>(message_.ByteSizeLong());
  call_.AddReceived(bytes);
  if (const absl::Status status = TakeCallBytes(service_, bytes); !status.ok()) return End(status);
  taken_bytes_ = bytes;
  // To join may wait for what an older stream of the key copies.
  if (bytes <= kCopyHereBytes && message_.write_key().empty()) return Take();
  if (service_.work.Post([this] { Take(); })) return;
  // What is half way goes on, at worst on this thread.
  written_ > 0 ? Take() : End(PoolFull(service_.work));
}

void BlockWriteCall::Take() {
  const auto self = shared_from_this();
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
    return FieldError({"block"}, Reason::kFieldConflict,
                      "block and offset: only the first message has them");
  } else if (!message_.write_key().empty()) {
    return FieldError({"write_key"}, Reason::kFieldConflict,
                      "write_key: only the first message has it");
  }
  const auto bytes = static_cast<int64_t>(message_.data().size());
  if (bytes == 0) return absl::OkStatus();
  const int64_t at = begin_ + written_;
  if (bytes > block_.bytes - at) {
    return FieldError(
        {"data", absl::StrCat(bytes, " bytes"), absl::StrCat("at most ", block_.bytes - at)},
        Reason::kFieldOutOfRange,
        absl::StrCat("data: ", bytes, " bytes at offset ", at, " end beyond the block's ",
                     block_.bytes));
  }
  TETRAD_RETURN_IF_ERROR(keyed_ == nullptr ? Copy(at) : keyed_->Append(joined_, bytes, [this, at] {
    return Copy(at);
  }));
  written_ += bytes;
  return absl::OkStatus();
}

absl::Status BlockWriteCall::Copy(int64_t at) {
  return service_.engine.Write(call_.client(), block_.block, at,
                               std::as_bytes(std::span(message_.data())));
}

absl::Status BlockWriteCall::Begin() {
  TETRAD_RETURN_IF_ERROR(ValidateReference("block", message_.block()));
  TETRAD_ASSIGN_OR_RETURN(block_, service_.engine.FindBlock(call_.client(), message_.block()));
  begin_ = message_.offset();
  if (begin_ < 0 || begin_ > block_.bytes) {
    return FieldError({"offset", absl::StrCat(begin_), absl::StrCat("0 to ", block_.bytes)},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("offset: ", begin_, " is not in [0, ", block_.bytes, "]"));
  }
  return message_.write_key().empty() ? absl::OkStatus() : Join();
}

absl::Status BlockWriteCall::Join() {
  TETRAD_RETURN_IF_ERROR(ValidateKey("write_key", message_.write_key()));
  TETRAD_ASSIGN_OR_RETURN(auto keyed, service_.engine.KeyedWriteOf(call_.client(), block_.block));
  TETRAD_ASSIGN_OR_RETURN(
      joined_, keyed->Join(message_.write_key(), begin_, [weak = weak_from_this()] {
        if (const auto call = weak.lock()) {
          call->EndFromOutside(
              ReasonError(Reason::kTakenOver, "write_key: a newer stream goes on with this write"));
        }
      }));
  keyed_ = std::move(keyed);
  return absl::OkStatus();
}

void BlockWriteCall::StreamEnded() {
  if (context_.IsCancelled()) return End(CancelledStatus(context_));
  if (block_.block.empty()) {
    return End(
        FieldError({"block"}, Reason::kFieldMissing, "the stream ended before its first message"));
  }
  response_.set_bytes(written_);
  End(absl::OkStatus());
}

}  // namespace

grpc::ServerReadReactor<v1::WriteRequest>* StartBlockWrite(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           v1::WriteResponse& response) {
  const auto call = std::make_shared<BlockWriteCall>(service, context, response);
  call->Start();
  return call.get();
}

}  // namespace tetrad
