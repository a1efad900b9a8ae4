// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/listeners.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "server/tls_files.h"

namespace tetrad {
namespace {

absl::Status ClaimTcp(const ListenAddress& address, bool may_be_exposed) {
  TETRAD_RETURN_IF_ERROR(CheckExposure(address, may_be_exposed));
  return CheckBindable(address);
}

absl::Status ClaimSocket(const ListenAddress& address, std::vector<SocketLock>& locks) {
  TETRAD_ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Acquire(address.path));
  locks.push_back(std::move(lock));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Listeners> Listeners::Claim(const Config& config) {
  TETRAD_RETURN_IF_ERROR(CheckTlsOptions(config));
  Listeners listeners;
  TETRAD_ASSIGN_OR_RETURN(listeners.permissions, SocketPermissions::Of(config));
  const bool tls = !config.tls_certificate.empty();
  for (const std::string& text : config.listen) {
    TETRAD_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
    if (address.kind == ListenAddress::Kind::kUnix) {
      TETRAD_RETURN_IF_ERROR(ClaimSocket(address, listeners.locks));
    } else {
      TETRAD_RETURN_IF_ERROR(ClaimTcp(address, tls || config.insecure_listen));
    }
    listeners.grpc.push_back(std::move(address));
  }
  if (listeners.grpc.empty()) return absl::InvalidArgumentError("listen: at least one is needed");
  if (config.health != "off") {
    // For probes of anybody, so it may be anywhere.
    TETRAD_ASSIGN_OR_RETURN(listeners.health, ParseListenAddress(config.health));
    TETRAD_RETURN_IF_ERROR(listeners.health->kind == ListenAddress::Kind::kUnix
                               ? ClaimSocket(*listeners.health, listeners.locks)
                               : ClaimTcp(*listeners.health, true));
  }
  if (config.http == "off") return listeners;
  TETRAD_ASSIGN_OR_RETURN(listeners.http, ParseListenAddress(config.http));
  if (listeners.http->kind == ListenAddress::Kind::kUnix) {
    return absl::InvalidArgumentError(
        absl::StrCat("http: ", listeners.http->ToString(), ": wanted HOST:PORT or off"));
  }
  TETRAD_RETURN_IF_ERROR(ClaimTcp(*listeners.http, config.insecure_listen));
  return listeners;
}

}  // namespace tetrad
