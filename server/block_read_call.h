// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BlockReadCall: one Memory.Read stream. The next piece is read from the device
// after the last was handed to the network, so a client that does not read
// makes us hold one piece.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/memory.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerWriteReactor<v1::ReadResponse>* StartBlockRead(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           const v1::ReadRequest& request);

}  // namespace tetrad
