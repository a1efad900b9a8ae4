// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Identity: whose call it is, a short printable name that quotas, leases and
// logs go by. Callers that present no credential share one identity per kind
// of listener, because the RPC library gives every Unix-socket peer the same
// name. A pure function of the call.
#pragma once

#include <string>

#include "grpcpp/server_context.h"

namespace tetrad {

// "anonymous@unix", "anonymous@tcp"
std::string Identify(const grpc::CallbackServerContext& context);

}  // namespace tetrad
