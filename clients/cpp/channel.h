// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The channel of a Client: one connection, with the limits, frame sizes and
// pings the daemon expects. Apart from Client, so that a benchmark can compare
// its calls with others on the same stack. Thread-safe.
#pragma once

#include <memory>

#include <grpcpp/channel.h>

#include "absl/status/statusor.h"

#include "clients/cpp/client.h"
#include "clients/cpp/endpoint.h"

namespace tetrad {

// Not yet connected; shares its connection with no other channel.
// INVALID_ARGUMENT: files of TLS or a token that cannot be used, or a token that
// would cross a network in plain text.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint,
                                                           const ClientOptions& options);

}  // namespace tetrad
