// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a Client is made of: the stubs of one channel, and how a call is begun
// on them. For the sources of this folder. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/memory.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

#include "clients/cpp/client.h"
#include "clients/cpp/status_mapping.h"

namespace tetrad {

// A client context with its deadline, cancelled when the caller asks for it.
class OutgoingCall {
 public:
  OutgoingCall(const CallOptions& options, absl::Duration default_deadline)
      : cancel_(options.cancel, [this] { context_.TryCancel(); }) {
    const absl::Duration limit =
        options.deadline > absl::ZeroDuration() ? options.deadline : default_deadline;
    context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(limit));
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> cancel_;
};

struct Client::Connection {
  Connection(std::string endpoint, const ClientOptions& options,
             std::shared_ptr<grpc::Channel> channel)
      : endpoint(std::move(endpoint)),
        options(options),
        status(channel),
        weights(channel),
        gemm(channel),
        memory(channel) {}

  // UNAVAILABLE comes from the transport as often as from the daemon, and then
  // says nothing about whom it tried to reach.
  absl::Status Named(const absl::Status& status) const {
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    absl::Status named(status.code(), absl::StrCat(endpoint, ": ", status.message()));
    status.ForEachPayload([&named](absl::string_view url, const absl::Cord& payload) {
      named.SetPayload(url, payload);
    });
    return named;
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Unary(Stub& stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 const Request& request, const CallOptions& options_of_call) {
    OutgoingCall call(options_of_call, options.deadline);
    absl::StatusOr<Response> response = Response();
    const grpc::Status status = (stub.*method)(call.context(), request, &*response);
    if (!status.ok()) response = Named(FromGrpcStatus(status));
    return response;
  }

  const std::string endpoint;
  const ClientOptions options;
  v1::Status::Stub status;
  v1::Weights::Stub weights;
  v1::Gemm::Stub gemm;
  v1::Memory::Stub memory;
};

}  // namespace tetrad
