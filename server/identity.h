// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Identity: whose call it is, a short printable name that quotas, leases and
// logs go by: "tls:SUBJECT" of a verified client certificate, "token:NAME" of a
// bearer token (access_table.h), else "anonymous@unix" or "anonymous@tcp".
// Callers that show nothing share one identity per kind of listener, because
// the RPC library gives every Unix-socket peer the same name. So where all
// listeners are of one kind, nothing has to be asked.
//
// Thread-safe: nothing changes after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "grpcpp/server_context.h"

#include "server/listen_address.h"

namespace tetrad {

enum class Origin : uint8_t { kUnix, kTcp, kHttp };
inline constexpr size_t kOrigins = 3;

// "anonymous@unix" and so on.
std::string_view AnonymousName(Origin origin);
bool IsAnonymous(std::string_view client);

// What a connection says about who is at its other end.
struct Peer {
  Origin origin = Origin::kUnix;
  std::string subject = {};  // of a verified certificate; empty: none
};

// 1 to 128 printable ASCII characters without blanks: safe in logs and files.
bool IsSubject(std::string_view text);
// The first of common name, URI and DNS names that is a subject; empty if none is.
std::string Subject(std::span<const std::string_view> names);
// "tls:SUBJECT"
std::string SubjectClient(std::string_view subject);

class Identities {
 public:
  // `subjects`: clients are asked for certificates.
  explicit Identities(const std::vector<ListenAddress>& listeners, bool subjects = false);

  Peer Of(const grpc::CallbackServerContext& context) const;
  // `peer` as the RPC library writes it; called only if it makes a difference.
  Origin Of(absl::FunctionRef<std::string()> peer) const;

 private:
  std::optional<Origin> only_;
  bool subjects_;
};

}  // namespace tetrad
