// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// HttpServer: /metrics, /healthz and /readyz, and nothing else.
//
// A fixed number of threads; a connection that is slow to send or to take its
// answer is closed after a short time, and there are enough threads that some
// of those do not keep a scrape waiting. Thread-safe; stops when destroyed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "server/listen_address.h"

class CivetServer;

namespace tetrad {

class HttpServer {
 public:
  enum class Answer { kPage, kUnauthorized, kForbidden };
  struct Asker {
    std::string_view authorization;  // the header; empty: none
    std::string peer;                // the address
  };
  struct Pages {
    absl::AnyInvocable<std::string() const> metrics;  // in Prometheus' text format
    absl::AnyInvocable<bool() const> ready;
    // Whether somebody gets /metrics; empty: everybody does.
    absl::AnyInvocable<Answer(const Asker& asker) const> may_scrape = nullptr;
  };

  // `address` is kTcp. UNAVAILABLE says why it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ListenAddress& address,
                                                           Pages pages);
  ~HttpServer();

  // With the port that was bound.
  const ListenAddress& address() const { return address_; }

 private:
  class Handler;
  HttpServer(ListenAddress address, Pages pages);

  ListenAddress address_;
  const std::unique_ptr<Handler> handler_;
  std::unique_ptr<CivetServer> server_;  // stops before the handler goes
};

}  // namespace tetrad
