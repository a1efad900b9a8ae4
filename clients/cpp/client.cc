// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/client.h"

#include <algorithm>
#include <utility>

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/channel.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/endpoint.h"

namespace tetrad {
namespace {

bool IsLoopbackIpv4(const std::string& host) {
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

// Whether what is sent to it can be seen on this machine only.
bool StaysHere(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::kUnix || endpoint.host == "localhost" ||
         endpoint.host == "::1" || IsLoopbackIpv4(endpoint.host);
}

}  // namespace

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::~Client() = default;

const std::string& Client::endpoint() const { return connection_->endpoint; }
int64_t Client::retries() const { return connection_->retries.load(std::memory_order_relaxed); }

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(std::string_view endpoint,
                                                        const ClientOptions& options) {
  const absl::StatusOr<Endpoint> parsed = ParseEndpoint(endpoint);
  if (!parsed.ok()) return parsed.status();
  if (absl::Status status = CheckReachable(*parsed); !status.ok()) return status;
  auto token = BearerToken::Make(options.token, options.token_file);
  if (!token.ok()) return token.status();
  if (!(*token)->empty() && !options.tls.has_value() && !StaysHere(*parsed)) {
    return absl::FailedPreconditionError(absl::StrCat(
        parsed->ToString(), ": a token is not sent in the clear to another machine; use TLS"));
  }
  const auto channel = MakeChannel(*parsed, options);
  if (!channel.ok()) return channel.status();
  auto connection =
      std::make_shared<Connection>(parsed->ToString(), options, *channel, *std::move(token));
  const absl::Status connected = connection->AwaitConnection(absl::InfiniteFuture(), {});
  if (!connected.ok()) return connection->Named(connected);
  return std::unique_ptr<Client>(new Client(std::move(connection)));
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus(const CallOptions& call) {
  return connection_->Unary(Rpc::kGetStatus, connection_->status, &v1::Status::Stub::GetStatus, {},
                            call);
}

absl::StatusOr<v1::LoadProgress> Client::Load(const v1::LoadRequest& request,
                                              const Progress& progress,
                                              const CallOptions& options) {
  v1::LoadProgress message;
  const absl::Status status = connection_->Repeated(
      Rpc::kLoad, options, connection_->options.transfer_deadline,
      [&](absl::Time deadline) -> Attempted {
        OutgoingCall call(options, deadline, *connection_->token);
        const auto reader = connection_->weights.Load(call.context(), request);
        bool began = false;
        while (reader->Read(&message)) {
          began = true;
          if (progress) progress(message.bytes_done(), message.bytes_total());
        }
        return {FromGrpcStatus(reader->Finish()), /*last=*/began};
      });
  if (!status.ok()) return status;
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
  auto response =
      connection_->Unary(Rpc::kSeal, connection_->weights, &v1::Weights::Stub::Seal, request, call);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_weights());
}

absl::StatusOr<v1::ListWeightsResponse> Client::ListWeights(const CallOptions& call) {
  return connection_->Unary(Rpc::kListWeights, connection_->weights, &v1::Weights::Stub::List, {},
                            call);
}

absl::StatusOr<int> Client::Drop(const std::string& weights, const CallOptions& call) {
  v1::DropRequest request;
  request.set_weights(weights);
  auto response =
      connection_->Unary(Rpc::kDrop, connection_->weights, &v1::Weights::Stub::Drop, request, call);
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
  const Rpc rpc = request.lease().empty() ? Rpc::kPrepare : Rpc::kPrepareInLease;
  return connection_->Unary(rpc, connection_->gemm, &v1::Gemm::Stub::Prepare, request, call);
}

absl::StatusOr<v1::ExecuteResponse> Client::Execute(const v1::ExecuteRequest& request,
                                                    const CallOptions& call) {
  return connection_->Unary(Rpc::kExecute, connection_->gemm, &v1::Gemm::Stub::Execute, request,
                            call);
}

absl::Status Client::Release(const std::string& plan, const CallOptions& call) {
  v1::ReleaseRequest request;
  request.set_plan(plan);
  return connection_
      ->Unary(Rpc::kRelease, connection_->gemm, &v1::Gemm::Stub::Release, request, call)
      .status();
}

absl::StatusOr<v1::DrainResponse> Client::Drain(const CallOptions& call) {
  return connection_->Unary(Rpc::kDrain, connection_->admin, &v1::Admin::Stub::Drain, {}, call);
}

absl::StatusOr<std::string> Client::SetLogLevel(const std::string& level, const CallOptions& call) {
  v1::SetLogLevelRequest request;
  request.set_level(level);
  auto response = connection_->Unary(Rpc::kSetLogLevel, connection_->admin,
                                     &v1::Admin::Stub::SetLogLevel, request, call);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_previous());
}

absl::StatusOr<std::string> Client::EndLease(const std::string& lease, const CallOptions& call) {
  v1::EndLeaseRequest request;
  request.set_lease(lease);
  auto response = connection_->Unary(Rpc::kEndLease, connection_->admin, &v1::Admin::Stub::EndLease,
                                     request, call);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_client());
}

}  // namespace tetrad
