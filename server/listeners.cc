// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/listeners.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

absl::Status ClaimTcp(const ListenAddress& address, const Config& config) {
  TETRAD_RETURN_IF_ERROR(CheckExposure(address, config.insecure_listen));
  return CheckBindable(address);
}

}  // namespace

absl::StatusOr<Listeners> Listeners::Claim(const Config& config) {
  Listeners listeners;
  for (const std::string& text : config.listen) {
    TETRAD_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
    if (address.kind == ListenAddress::Kind::kUnix) {
      TETRAD_ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Acquire(address.path));
      listeners.locks.push_back(std::move(lock));
    } else {
      TETRAD_RETURN_IF_ERROR(ClaimTcp(address, config));
    }
    listeners.grpc.push_back(std::move(address));
  }
  if (listeners.grpc.empty()) return absl::InvalidArgumentError("listen: at least one is needed");
  if (config.http == "off") return listeners;
  TETRAD_ASSIGN_OR_RETURN(listeners.http, ParseListenAddress(config.http));
  if (listeners.http->kind == ListenAddress::Kind::kUnix) {
    return absl::InvalidArgumentError(
        absl::StrCat("http: ", listeners.http->ToString(), ": wanted HOST:PORT or off"));
  }
  TETRAD_RETURN_IF_ERROR(ClaimTcp(*listeners.http, config));
  return listeners;
}

}  // namespace tetrad
