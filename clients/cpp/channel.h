// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The channel of a Client: one connection, with the limits, frame sizes and
// pings the daemon expects, plain or by TLS. It is re-established when it breaks,
// after 100 ms at first and 5 s at most. Apart from Client, so that a benchmark can compare
// its calls with others on the same stack. Thread-safe.
#pragma once

#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/status/statusor.h"

#include "clients/cpp/client.h"
#include "clients/cpp/endpoint.h"

namespace tetrad {

// As ClientOptions::tls has it. INVALID_ARGUMENT: a certificate without its key or
// the other way round; else as reading a file failed.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

// Not yet connected; shares its connection with no other channel. Fails as
// MakeCredentials() does.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint,
                                                           const ClientOptions& options);

}  // namespace tetrad
