// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Attachment: a lease that this process holds in a daemon. Blocks and plan
// handles belong to it; when it ends, however that is, the daemon frees them
// after its grace time, in which Client::Attach() with its name finds them.
//
// Thread-safe. It lives on threads of the RPC library, has none of its own, and
// may outlive its Client. The destructor lets the lease go and waits until the
// stream is closed here.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "clients/cpp/client.h"

namespace tetrad {

class Attachment {
 public:
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  const std::string& lease() const;
  absl::Duration grace() const;
  bool resumed() const;  // the lease existed before, with all it holds
  // The daemon is about to stop: go elsewhere.
  bool draining() const;
  // OK while the lease is held, then why it is not: UNAVAILABLE from a daemon
  // that stopped or cannot be reached, CANCELLED after Client::Detach().
  absl::Status status() const;
  // Requested when the lease is no longer held; fits CallOptions::cancel.
  std::stop_token lost() const;

 private:
  friend class Client;
  class Stream;
  static absl::StatusOr<std::unique_ptr<Attachment>> Open(
      std::shared_ptr<Client::Connection> connection, const std::string& resume,
      const CallOptions& call);
  explicit Attachment(std::shared_ptr<Stream> stream);
  const std::shared_ptr<Stream> stream_;
};

}  // namespace tetrad
