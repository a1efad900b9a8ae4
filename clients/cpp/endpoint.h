// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a daemon listens: `unix:PATH` or `HOST:PORT`. Parsing refuses what
// gRPC would accept and then fail on much later, for example a path too long
// for a socket address, a missing port, or a URI scheme gRPC happens to know.
// Plain values; safe to share.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tetrad {

struct Endpoint {
  enum class Kind { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  std::string path;  // kUnix
  std::string host;  // kTcp; an IPv6 address is kept without brackets
  int port = 0;      // kTcp

  // As users write it.
  std::string ToString() const;
  // As gRPC wants it.
  std::string GrpcTarget() const;
};

// INVALID_ARGUMENT says what was wrong and shows both accepted forms.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

// For a Unix socket: NOT_FOUND if nothing is at the path, FAILED_PRECONDITION
// if it is no socket, PERMISSION_DENIED if this user may not use it. OK for
// TCP, where only connecting can tell.
absl::Status CheckReachable(const Endpoint& endpoint);

}  // namespace tetrad
