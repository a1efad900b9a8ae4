// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ListenAddress: where the daemon listens, `unix:PATH` or `HOST:PORT`.
//
// Parsing refuses what the RPC library would take and fail on later, without a
// reason. CheckBindable() finds out why an address cannot be bound, because
// that library only says that it could not. Plain values.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tetrad {

struct ListenAddress {
  enum class Kind { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  std::string path;  // kUnix, absolute
  std::string host;  // kTcp; an IPv6 address without brackets
  int port = 0;      // kTcp; 0: any free one

  std::string ToString() const;
};

// INVALID_ARGUMENT says what is wrong and shows the accepted forms.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// For kTcp: INVALID_ARGUMENT if the host has no address, FAILED_PRECONDITION if
// it is reachable from other machines and `insecure` is not set.
absl::Status CheckExposure(const ListenAddress& address, bool insecure);

// For kTcp: the first address of the host, as "1.2.3.4:5" or "[::1]:5".
absl::StatusOr<std::string> NumericAddress(const ListenAddress& address);

// For kTcp: UNAVAILABLE says why nobody could listen there now.
absl::Status CheckBindable(const ListenAddress& address);

// For kTcp: opens a connection, without waiting for it, and closes it again.
absl::Status Connect(const ListenAddress& address);

}  // namespace tetrad
