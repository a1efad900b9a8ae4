// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Unary RPCs whose answer is a function of the request: run at once if they
// are quick, or on the work pool if they may copy, scan or build much.
//
// The returned reactor owns itself; the RPC library ends it with OnDone().
#pragma once

#include <google/protobuf/message.h>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

#include "server/call.h"

namespace tetrad {

// Fills the response. Bodies that log nothing take the client's name alone.
using UnaryBody = absl::AnyInvocable<absl::Status(const Caller& caller)>;

struct UnaryMessages {
  const google::protobuf::Message* request;
  const google::protobuf::Message* response;
};

grpc::ServerUnaryReactor* AnswerNow(const ServiceContext& service, Method method,
                                    grpc::CallbackServerContext& context, UnaryMessages messages,
                                    UnaryBody body);

// RESOURCE_EXHAUSTED if too much work waits already.
grpc::ServerUnaryReactor* AnswerLater(const ServiceContext& service, Method method,
                                      grpc::CallbackServerContext& context, UnaryMessages messages,
                                      UnaryBody body);

}  // namespace tetrad
