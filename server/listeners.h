// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Listeners: the addresses of a configuration, checked and claimed.
//
// Claimed before anything slow is done, so that a second daemon fails at once
// and with a reason. Sockets are held by their locks from then on; a TCP port
// is only found free, and bound by the server later. Options of TLS and sockets
// that do not go together are refused here, too. Movable; owns the locks.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "server/config.h"
#include "server/listen_address.h"
#include "server/socket_lock.h"
#include "server/socket_permissions.h"

namespace tetrad {

struct Listeners {
  std::vector<ListenAddress> grpc;  // at least one
  std::optional<ListenAddress> http;
  std::optional<ListenAddress> health;  // of the standard health service alone
  SocketPermissions permissions;        // of those that are Unix sockets
  std::vector<SocketLock> locks;

  // Errors name the address, and who has it where that is known.
  static absl::StatusOr<Listeners> Claim(const Config& config);
};

}  // namespace tetrad
