// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// gRPC status to absl::Status, one to one: same code, same message. Trailing
// details (a serialised google.rpc.Status) are kept as a payload, so that a
// caller who understands them loses nothing. Stateless.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tetrad {

// The payload under which `error_details` of a gRPC status are kept, as sent.
inline constexpr char kStatusDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace tetrad
