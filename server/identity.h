// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Identity: whose call it is, a short printable name that quotas, leases and
// logs go by. Callers that present no credential share one identity per kind
// of listener, because the RPC library gives every Unix-socket peer the same
// name. So where all listeners are of one kind, nothing has to be asked.
//
// Thread-safe: nothing changes after construction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "grpcpp/server_context.h"

#include "server/listen_address.h"

namespace tetrad {

class Identities {
 public:
  explicit Identities(const std::vector<ListenAddress>& listeners);

  // "anonymous@unix", "anonymous@tcp"
  std::string Of(const grpc::CallbackServerContext& context) const;
  // `peer` as the RPC library writes it; called only if it makes a difference.
  std::string Of(absl::FunctionRef<std::string()> peer) const;

 private:
  std::optional<ListenAddress::Kind> only_;
};

}  // namespace tetrad
