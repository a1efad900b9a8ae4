// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/block_read_call.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

// One of a posted job and a write is under way at any time, so nothing here
// runs on two threads at once, and a cancelled call is noticed at the next step.
class BlockReadCall final : public grpc::ServerWriteReactor<v1::ReadResponse> {
 public:
  BlockReadCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                const v1::ReadRequest& request)
      : service_(service),
        context_(context),
        request_(request),
        call_(service, Method::kRead, context) {}

  void Start();
  void OnWriteDone(bool ok) override;
  void OnDone() override {
    service_.call_bytes.Give(taken_bytes_);
    delete this;
  }

 private:
  absl::Status Begin();
  void Next();
  void Send();
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  const v1::ReadRequest& request_;
  Call call_;
  v1::ReadResponse piece_;
  int64_t taken_bytes_ = 0;  // of call_bytes
  int64_t at_ = 0;
  int64_t end_ = 0;
};

void BlockReadCall::Start() {
  call_.AddReceived(static_cast<int64_t>(request_.ByteSizeLong()));
  absl::Status status = call_.admission();
  if (status.ok()) status = Guarded([this] { return Begin(); });
  status.ok() ? Next() : End(status);
}

absl::Status BlockReadCall::Begin() {
  TETRAD_RETURN_IF_ERROR(ValidateReference("block", request_.block()));
  TETRAD_ASSIGN_OR_RETURN(const BlockInfo block,
                          service_.engine.FindBlock(call_.client(), request_.block()));
  at_ = request_.offset();
  if (at_ < 0 || at_ > block.bytes) {
    return FieldError({"offset", absl::StrCat(at_), absl::StrCat("0 to ", block.bytes)},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("offset: ", at_, " is not in [0, ", block.bytes, "]"));
  }
  if (request_.bytes() < 0 || request_.bytes() > block.bytes - at_) {
    return FieldError(
        {"bytes", absl::StrCat(request_.bytes()), absl::StrCat("0 to ", block.bytes - at_)},
        Reason::kFieldOutOfRange,
        absl::StrCat("bytes: ", request_.bytes(), " at offset ", at_, " is not in the block of ",
                     block.bytes));
  }
  end_ = request_.bytes() == 0 ? block.bytes : at_ + request_.bytes();
  // A piece as it is and as the RPC library sends it.
  const int64_t bytes = 2 * std::min(kPieceBytes, end_ - at_);
  TETRAD_RETURN_IF_ERROR(TakeCallBytes(service_, bytes));
  taken_bytes_ = bytes;
  return absl::OkStatus();
}

void BlockReadCall::Next() {
  if (at_ == end_) return End(absl::OkStatus());
  if (end_ - at_ <= kCopyHereBytes) return Send();
  if (service_.work.Post([this] { Send(); })) return;
  // What is half way goes on, at worst on this thread.
  at_ > request_.offset() ? Send() : End(PoolFull(service_.work));
}

void BlockReadCall::Send() {
  if (context_.IsCancelled()) return End(CancelledStatus(context_));
  const int64_t bytes = std::min(kPieceBytes, end_ - at_);
  const absl::Status status = Guarded([&] {
    std::string& data = *piece_.mutable_data();
    data.resize(static_cast<size_t>(bytes));
    return service_.engine.Read(call_.client(), request_.block(), at_,
                                std::as_writable_bytes(std::span(data)));
  });
  if (!status.ok()) return End(status);
  at_ += bytes;
  const auto sent = static_cast<int64_t>(piece_.ByteSizeLong());
  call_.AddSent(sent);
  call_.AwaitClient(sent);
  StartWrite(&piece_);
}

void BlockReadCall::OnWriteDone(bool ok) {
  if (!call_.ClientMoved()) return End(call_.Stalled());
  ok ? Next() : End(CancelledStatus(context_));
}

}  // namespace

grpc::ServerWriteReactor<v1::ReadResponse>* StartBlockRead(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           const v1::ReadRequest& request) {
  auto* call = new BlockReadCall(service, context, request);
  call->Start();
  return call;
}

}  // namespace tetrad
