// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WaitCall: one Gemm.Wait, a long poll that takes no thread. It ends when the
// outcome is there, when its time is over, or with UNAVAILABLE when the gate
// closes. The reply refers to the outcome's bytes, so that any number of waits
// for a large one costs no copy.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

#include "server/service_context.h"
#include "server/tickets.h"

namespace tetrad {

// The returned reactor owns itself. The messages are those of the schema, as bytes.
grpc::ServerUnaryReactor* StartWait(const ServiceContext& service, Tickets& tickets,
                                    grpc::CallbackServerContext& context,
                                    const grpc::ByteBuffer& request, grpc::ByteBuffer& response);

}  // namespace tetrad
