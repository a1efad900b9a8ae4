// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of tetrad.v1.Memory.
#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/resumption.h"

namespace tetrad {
namespace {

constexpr size_t kWriteBytes = 1 << 20;

// A block that is gone is NOT_FOUND too, and says so to the next stream as well.
bool IsUnknownKey(const absl::Status& status) { return absl::IsNotFound(status); }

// One stream; `message` is the first, without data.
grpc::Status SendBlock(v1::Memory::Stub& stub, grpc::ClientContext* context,
                       v1::WriteRequest message, std::span<const uint8_t> data,
                       const std::function<void(size_t)>& sent) {
  v1::WriteResponse response;
  const auto writer = stub.Write(context, &response);
  size_t at = 0;
  bool open = true;
  do {
    const auto part = data.subspan(at, std::min(kWriteBytes, data.size() - at));
    message.set_data(part.data(), part.size());
    open = writer->Write(message);
    message.clear_block();
    message.clear_offset();
    message.clear_write_key();
    at += part.size();
    if (open) sent(at);
  } while (open && at < data.size());
  if (open) writer->WritesDone();
  // A write that failed means the daemon ended the stream: Finish has the reason.
  return writer->Finish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Attachment>> Client::Attach(const std::string& resume,
                                                           const CallOptions& call) {
  return Attachment::Open(connection_, resume, call);
}

absl::Status Client::Detach(const std::string& lease, const CallOptions& call) {
  v1::DetachRequest request;
  request.set_lease(lease);
  return connection_
      ->Unary(Rpc::kDetach, connection_->memory, &v1::Memory::Stub::Detach, request, call)
      .status();
}

absl::StatusOr<v1::BlockInfo> Client::Allocate(const std::string& lease, int64_t bytes,
                                               const CallOptions& call) {
  v1::AllocateRequest request;
  request.set_lease(lease);
  request.set_bytes(bytes);
  auto response = connection_->Unary(Rpc::kAllocate, connection_->memory,
                                     &v1::Memory::Stub::Allocate, request, call);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_block());
}

absl::Status Client::Write(const std::string& block, int64_t offset, std::span<const uint8_t> data,
                           const CallOptions& options) {
  Connection& daemon = *connection_;
  Resumption resumption(options, daemon.options, daemon.options.transfer_deadline);
  v1::GetWriteRequest question;
  question.set_block(block);
  question.set_write_key(resumption.key());
  absl::Status status;
  bool ask = false;
  size_t told = 0;
  do {
    size_t at = 0;  // written
    if (std::exchange(ask, true)) {
      const auto got = daemon.Unary(Rpc::kGetWrite, daemon.memory, &v1::Memory::Stub::GetWrite,
                                    question, resumption.Attempt());
      status = got.status();
      // Unknown: the first stream never began, or another write came between.
      if (got.ok()) {
        at = std::min(static_cast<size_t>(got->bytes()), data.size());
        resumption.Reached(got->bytes());
      } else if (!IsUnknownKey(status)) {
        continue;
      }
    }
    OutgoingCall call = daemon.Begin(resumption.Attempt(), daemon.options.transfer_deadline);
    v1::WriteRequest first;
    first.set_block(block);
    first.set_offset(offset + static_cast<int64_t>(at));
    if (options.resume) first.set_write_key(resumption.key());
    const auto sent = [&](size_t bytes) {
      if (at + bytes <= told) return;
      told = at + bytes;
      resumption.Sent();
    };
    status = daemon.Named(FromGrpcStatus(
        SendBlock(daemon.memory, call.context(), std::move(first), data.subspan(at), sent)));
    if (status.ok()) return status;
  } while (resumption.Again(status));
  return status;
}

absl::Status Client::Read(const std::string& block, int64_t offset, std::span<uint8_t> out,
                          const CallOptions& options) {
  if (out.empty()) return absl::OkStatus();  // the daemon would take 0 for all that is left
  v1::ReadRequest request;
  request.set_block(block);
  request.set_offset(offset);
  request.set_bytes(static_cast<int64_t>(out.size()));
  size_t got = 0;
  bool fits = true;
  const absl::Status status = connection_->Repeated(
      Rpc::kRead, options, connection_->options.transfer_deadline,
      [&](absl::Time deadline) -> Attempted {
        OutgoingCall call(options, deadline, *connection_->token);
        const auto reader = connection_->memory.Read(call.context(), request);
        v1::ReadResponse piece;
        got = 0;
        fits = true;
        while (reader->Read(&piece)) {
          const std::string& data = piece.data();
          fits = fits && data.size() <= out.size() - got;
          if (!fits) continue;
          std::copy(data.begin(), data.end(), out.begin() + static_cast<ptrdiff_t>(got));
          got += data.size();
        }
        return {FromGrpcStatus(reader->Finish())};
      });
  if (!status.ok()) return status;
  if (!fits || got != out.size()) {
    return absl::InternalError(
        absl::StrCat("the daemon sent ", got, " of ", out.size(), " bytes, or more"));
  }
  return absl::OkStatus();
}

absl::Status Client::Free(const std::string& block, const CallOptions& call) {
  v1::FreeRequest request;
  request.set_block(block);
  return connection_->Unary(Rpc::kFree, connection_->memory, &v1::Memory::Stub::Free, request, call)
      .status();
}

absl::StatusOr<v1::ListBlocksResponse> Client::ListBlocks(const std::string& lease,
                                                          const CallOptions& call) {
  v1::ListBlocksRequest request;
  request.set_lease(lease);
  return connection_->Unary(Rpc::kListBlocks, connection_->memory, &v1::Memory::Stub::List, request,
                            call);
}

}  // namespace tetrad
