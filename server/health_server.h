// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// HealthServer: a listener for probes, which serves the standard health service
// in plain text to anybody, and nothing else. It has an RPC server of its own,
// so that nothing else can come to be reachable there.
//
// For one thread, but health() for any. UNAVAILABLE: it cannot listen.
#pragma once

#include <memory>
#include <set>
#include <string>

#include <grpcpp/server.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "server/health_service.h"
#include "server/listen_address.h"
#include "server/socket_permissions.h"

namespace tetrad {

class HealthServer {
 public:
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(
      ListenAddress address, const SocketPermissions& permissions,
      const std::set<std::string, std::less<>>& services);
  ~HealthServer() { Shutdown(absl::ZeroDuration()); }

  HealthService& health() { return health_; }
  const ListenAddress& address() const { return address_; }
  void Shutdown(absl::Duration grace);

 private:
  HealthServer(ListenAddress address, const std::set<std::string, std::less<>>& services)
      : address_(std::move(address)), health_(services) {}

  ListenAddress address_;
  HealthService health_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace tetrad
