// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a Client is made of: the stubs of one channel, and how a call is begun
// on them, and again if it may be (retry.h). For the sources of this folder.
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/admin.grpc.pb.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/memory.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

#include "clients/cpp/bearer_token.h"
#include "clients/cpp/client.h"
#include "clients/cpp/retry.h"
#include "clients/cpp/status_mapping.h"

namespace tetrad {

// When a call is to be over: at the deadline its options name, or after
// `default_deadline`. At most ten years from now, which every clock can hold.
absl::Time DeadlineOf(const CallOptions& options, absl::Duration default_deadline);

// What every call sends beside its messages: credential and trace.
void AddMetadata(const CallOptions& options, const BearerToken& token,
                 grpc::ClientContext& context);

// A client context with its deadline, cancelled when the caller asks for it.
class OutgoingCall {
 public:
  OutgoingCall(const CallOptions& options, absl::Time deadline, const BearerToken& token)
      : cancel_(options.cancel, [this] { context_.TryCancel(); }) {
    context_.set_deadline(absl::ToChronoTime(deadline));
    AddMetadata(options, token, context_);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> cancel_;
};

// What became of one attempt.
struct Attempted {
  absl::Status status;
  bool last = false;  // others saw something of it: it is not to be repeated
};

struct Client::Connection {
  Connection(std::string endpoint, const ClientOptions& options,
             std::shared_ptr<grpc::Channel> channel, std::unique_ptr<BearerToken> token)
      : endpoint(std::move(endpoint)),
        options(options),
        channel(channel),
        token(std::move(token)),
        status(channel),
        weights(channel),
        gemm(channel),
        memory(channel),
        admin(channel) {}

  // UNAVAILABLE comes from the transport as often as from the daemon, and then
  // says nothing about whom it tried to reach.
  absl::Status Named(const absl::Status& status) const;

  // A call without repetition; its deadline is `default_deadline` unless it has one.
  OutgoingCall Begin(const CallOptions& call, absl::Duration default_deadline) const {
    return OutgoingCall(call, DeadlineOf(call, default_deadline), *token);
  }

  // OK once connected. UNAVAILABLE as soon as connecting failed, so without
  // waiting for the next try: the common cause is a daemon that is not there.
  absl::Status AwaitConnection(absl::Time deadline, const std::stop_token& cancel) const;

  // Makes `attempt` until it succeeds or retry.h lets it end. What it is given is
  // the deadline of the whole.
  absl::Status Repeated(Rpc rpc, const CallOptions& call, absl::Duration default_deadline,
                        absl::FunctionRef<Attempted(absl::Time)> attempt);

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Unary(Rpc rpc, Stub& stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 const Request& request, const CallOptions& options_of_call) {
    absl::StatusOr<Response> response = Response();
    const absl::Status status =
        Repeated(rpc, options_of_call, options.deadline, [&](absl::Time deadline) -> Attempted {
          OutgoingCall call(options_of_call, deadline, *token);
          return {FromGrpcStatus((stub.*method)(call.context(), request, &*response))};
        });
    if (!status.ok()) response = status;
    return response;
  }

  const std::string endpoint;
  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<BearerToken> token;
  v1::Status::Stub status;
  v1::Weights::Stub weights;
  v1::Gemm::Stub gemm;
  v1::Memory::Stub memory;
  v1::Admin::Stub admin;
  RetryBudget retry_budget;
  std::atomic<int64_t> retries = 0;

 private:
  // False: the caller gave up. With `or_connected` only until there is a connection.
  bool Pause(absl::Time until, bool or_connected, const std::stop_token& cancel) const;
};

}  // namespace tetrad
