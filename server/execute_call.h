// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteCall: one Gemm.Execute. A call that its client gives up, or whose
// deadline passes, ends at once.
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
