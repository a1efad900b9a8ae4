// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// UploadCall: one Weights.Upload stream. Chunks go straight into device
// memory. Whatever ends the stream before its proper end, an error, a cancelled
// call, a broken connection, forgets the version, unless the upload has a key:
// then it is kept (open_uploads.h) for all but errors that sending again would
// not help.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/weights.pb.h"

#include "server/open_uploads.h"
#include "server/service_context.h"
#include "server/step_alarm.h"

namespace tetrad {

// The returned reactor owns itself. `expiry` steps `uploads`.
grpc::ServerReadReactor<v1::UploadRequest>* StartUpload(const ServiceContext& service,
                                                        OpenUploads& uploads, StepAlarm& expiry,
                                                        grpc::CallbackServerContext& context,
                                                        v1::UploadResponse& response);

}  // namespace tetrad
