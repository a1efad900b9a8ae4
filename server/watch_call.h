// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WatchCall: one Gemm.Watch stream. Each ticket named is told of once, in the
// order in which they are done; then the stream ends. A drain does not wait for
// it: when the gate closes it tells what is known and ends with UNAVAILABLE.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/service_context.h"
#include "server/tickets.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerWriteReactor<v1::TicketEvent>* StartWatch(const ServiceContext& service,
                                                      Tickets& tickets,
                                                      grpc::CallbackServerContext& context,
                                                      const v1::WatchRequest& request);

}  // namespace tetrad
