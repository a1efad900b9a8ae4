// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteCall: one Gemm.Execute, from the message to the reply.
//
//   submitting  the request is decoded, its operands copied to the device
//               (here if small, else on the work pool)
//   running     the engine has it; no thread of ours waits
//   replying    the output is copied into the response, on the reply pool
//
// A cancelled or expired call that is running ends at once, whatever the
// device does; its result is dropped when it comes.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerUnaryReactor* StartExecute(const ServiceContext& service,
                                       grpc::CallbackServerContext& context,
                                       const v1::ExecuteRequest& request,
                                       v1::ExecuteResponse& response);

}  // namespace tetrad
