// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LoadCall: one Weights.Load: a checkpoint is read on the load pool, progress
// is streamed. A slow reader does not slow the load: while a message is being
// written, newer progress replaces older.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/weights.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerWriteReactor<v1::LoadProgress>* StartLoad(const ServiceContext& service,
                                                      grpc::CallbackServerContext& context,
                                                      const v1::LoadRequest& request);

}  // namespace tetrad
