// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Server: the network in front of an engine: gRPC listeners, HTTP, and the
// steps of a drain.
//
//   Start()       listens; requests are taken, health says SERVING
//   Reload()      takes files of TLS and access that have changed
//   BeginDrain()  health says NOT_SERVING and attached clients hear it, requests
//                 are still taken
//   CloseGate()   new requests get UNAVAILABLE, attachments end; idle_fd() becomes
//                 readable when the last running request has ended
//   Shutdown()    cancels what is left and stops listening
//
// For one thread. The engine must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "engine/engine.h"
#include "server/config.h"
#include "server/listeners.h"
#include "server/log.h"

namespace tetrad {

class Server {
 public:
  // Errors name the address or file that could not be served, and why. `drain`
  // is called, on any thread, when a client asks for what SIGTERM does.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Listeners listeners,
                                                       Engine& engine, Log& log,
                                                       std::function<void()> drain);
  ~Server();

  // As bound: port 0 is replaced by the port taken.
  const std::vector<std::string>& grpc_addresses() const;
  const std::string& http_address() const;    // empty if HTTP is off
  const std::string& health_address() const;  // empty if there is no such listener

  void Reload();
  void BeginDrain();
  void CloseGate();
  int idle_fd() const;
  int64_t calls_inside() const;
  // Calls that have not ended by themselves after `grace` are cancelled.
  void Shutdown(absl::Duration grace);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tetrad
