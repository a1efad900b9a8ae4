// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BlockWriteCall: one Memory.Write stream. Data goes to the block message by
// message: the next is read when the last has been written, so that the client
// is held back by the device and not by our memory.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/memory.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerReadReactor<v1::WriteRequest>* StartBlockWrite(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           v1::WriteResponse& response);

}  // namespace tetrad
