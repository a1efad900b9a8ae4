// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteStream: one Gemm.ExecuteStream. Each request takes one of a fixed
// number of slots until its answer was handed to the network; with all taken
// nothing is read, so neither requests nor answers pile up here. Answers leave
// in the order in which their requests end.
//
// However the stream ends, nothing of it is left running that still could be
// kept from the device: a client that gives up or vanishes has everything
// cancelled. When the gate closes, what runs is answered and the stream ends.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>* StartExecuteStream(
    const ServiceContext& service, grpc::CallbackServerContext& context);

}  // namespace tetrad
