// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SubmitCall: one Gemm.Submit. It is answered when the engine has the request,
// or refuses it. One without a key is cancelled with its call before that; one
// with a key goes on, because its client will ask for it again.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/service_context.h"
#include "server/tickets.h"

namespace tetrad {

// The returned reactor owns itself. `request` is emptied.
grpc::ServerUnaryReactor* StartSubmit(const ServiceContext& service, Tickets& tickets,
                                      grpc::CallbackServerContext& context,
                                      v1::SubmitRequest& request, v1::SubmitResponse& response);

}  // namespace tetrad
