// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/channel.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/endpoint.h"

namespace tetrad {
namespace {

constexpr size_t kUploadChunkBytes = 1 << 20;

// Fails as soon as the first attempt does, instead of retrying until the
// timeout: the common cause is a daemon that is not there.
absl::Status WaitUntilReady(grpc::Channel& channel, absl::Duration timeout, bool tls) {
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout);
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(
          tls ? "nobody accepts TLS connections there, or one side refused the other's certificate"
              : "nobody accepts connections there");
    }
    if (!channel.WaitForStateChange(state, deadline)) {
      return absl::UnavailableError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
  }
}

}  // namespace

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::~Client() = default;

const std::string& Client::endpoint() const { return connection_->endpoint; }

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(std::string_view endpoint,
                                                        const ClientOptions& options) {
  const absl::StatusOr<Endpoint> parsed = ParseEndpoint(endpoint);
  if (!parsed.ok()) return parsed.status();
  if (absl::Status status = CheckReachable(*parsed); !status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = MakeChannel(*parsed, options);
  if (!channel.ok()) return channel.status();
  auto connection = std::make_shared<Connection>(parsed->ToString(), options, *channel);
  const bool tls = options.tls.has_value() && parsed->kind == Endpoint::Kind::kTcp;
  if (absl::Status status = WaitUntilReady(**channel, options.connect_timeout, tls); !status.ok()) {
    return connection->Named(status);
  }
  return std::unique_ptr<Client>(new Client(std::move(connection)));
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus(const CallOptions& call) {
  return connection_->Unary(connection_->status, &v1::Status::Stub::GetStatus, {}, call);
}

absl::StatusOr<v1::WeightsInfo> Client::Upload(const v1::UploadHeader& header,
                                               std::span<const uint8_t> codes,
                                               std::span<const uint8_t> scales,
                                               const Progress& progress,
                                               const CallOptions& options) {
  OutgoingCall call(options, connection_->options.transfer_deadline);
  v1::UploadResponse response;
  const auto writer = connection_->weights.Upload(call.context(), &response);
  const auto total = static_cast<int64_t>(codes.size() + scales.size());
  int64_t done = 0;

  v1::UploadRequest request;
  *request.mutable_header() = header;
  bool open = writer->Write(request);
  const auto send = [&](v1::WeightsOperand operand, std::span<const uint8_t> bytes) {
    for (size_t offset = 0; open && offset < bytes.size(); offset += kUploadChunkBytes) {
      const auto part = bytes.subspan(offset, std::min(kUploadChunkBytes, bytes.size() - offset));
      v1::UploadChunk& chunk = *request.mutable_chunk();
      chunk.set_operand(operand);
      chunk.set_offset(static_cast<int64_t>(offset));
      chunk.set_data(part.data(), part.size());
      open = writer->Write(request);
      done += static_cast<int64_t>(part.size());
      if (open && progress) progress(done, total);
    }
  };
  send(v1::WEIGHTS_OPERAND_CODES, codes);
  send(v1::WEIGHTS_OPERAND_SCALES, scales);
  if (open) writer->WritesDone();
  // A write that failed means the daemon ended the stream: Finish has the reason.
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return connection_->Named(FromGrpcStatus(status));
  return std::move(*response.mutable_weights());
}

absl::StatusOr<v1::LoadProgress> Client::Load(const v1::LoadRequest& request,
                                              const Progress& progress,
                                              const CallOptions& options) {
  OutgoingCall call(options, connection_->options.transfer_deadline);
  const auto reader = connection_->weights.Load(call.context(), request);
  v1::LoadProgress message;
  while (reader->Read(&message)) {
    if (progress) progress(message.bytes_done(), message.bytes_total());
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return connection_->Named(FromGrpcStatus(status));
  if (!message.has_weights()) {
    return absl::InternalError("the daemon ended a load without saying what it loaded");
  }
  return message;
}

absl::StatusOr<v1::WeightsInfo> Client::Seal(const std::string& name, int64_t version,
                                             const CallOptions& call) {
  v1::SealRequest request;
  request.set_name(name);
  request.set_version(version);
  auto response = connection_->Unary(connection_->weights, &v1::Weights::Stub::Seal, request, call);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_weights());
}

absl::StatusOr<v1::ListWeightsResponse> Client::ListWeights(const CallOptions& call) {
  return connection_->Unary(connection_->weights, &v1::Weights::Stub::List, {}, call);
}

absl::StatusOr<int> Client::Drop(const std::string& weights, const CallOptions& call) {
  v1::DropRequest request;
  request.set_weights(weights);
  auto response = connection_->Unary(connection_->weights, &v1::Weights::Stub::Drop, request, call);
  if (!response.ok()) return response.status();
  return response->dropped();
}

absl::StatusOr<v1::PrepareResponse> Client::Prepare(const v1::Signature& signature,
                                                    const CallOptions& call) {
  v1::PrepareRequest request;
  *request.mutable_signature() = signature;
  return Prepare(request, call);
}

absl::StatusOr<v1::PrepareResponse> Client::Prepare(const v1::PrepareRequest& request,
                                                    const CallOptions& call) {
  return connection_->Unary(connection_->gemm, &v1::Gemm::Stub::Prepare, request, call);
}

absl::StatusOr<v1::ExecuteResponse> Client::Execute(const v1::ExecuteRequest& request,
                                                    const CallOptions& call) {
  return connection_->Unary(connection_->gemm, &v1::Gemm::Stub::Execute, request, call);
}

absl::Status Client::Release(const std::string& plan, const CallOptions& call) {
  v1::ReleaseRequest request;
  request.set_plan(plan);
  return connection_->Unary(connection_->gemm, &v1::Gemm::Stub::Release, request, call).status();
}

}  // namespace tetrad
