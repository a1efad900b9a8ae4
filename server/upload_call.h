// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// UploadCall: one Weights.Upload stream. Chunks go straight into device
// memory. Whatever ends the stream before its proper end, an error, a cancelled
// call, a broken connection, forgets the version.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/weights.pb.h"

#include "server/service_context.h"

namespace tetrad {

// The returned reactor owns itself.
grpc::ServerReadReactor<v1::UploadRequest>* StartUpload(const ServiceContext& service,
                                                        grpc::CallbackServerContext& context,
                                                        v1::UploadResponse& response);

}  // namespace tetrad
