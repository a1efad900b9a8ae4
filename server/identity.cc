// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/identity.h"

#include <algorithm>
#include <memory>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using Kind = ListenAddress::Kind;

constexpr size_t kMaxSubject = 128;

std::string SubjectOf(const grpc::AuthContext& auth) {
  // Only of certificates that were verified: others never get so far.
  std::vector<std::string_view> names;
  for (const char* property :
       {GRPC_X509_CN_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : auth.FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
  }
  return Subject(names);
}

}  // namespace

std::string_view AnonymousName(Origin origin) {
  switch (origin) {
    case Origin::kUnix:
      return "anonymous@unix";
    case Origin::kTcp:
      return "anonymous@tcp";
    case Origin::kHttp:
      return "anonymous@http";
  }
  return "anonymous@tcp";
}

bool IsAnonymous(std::string_view client) { return client.starts_with("anonymous@"); }

bool IsSubject(std::string_view text) {
  return !text.empty() && text.size() <= kMaxSubject &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::string Subject(std::span<const std::string_view> names) {
  const auto found = std::ranges::find_if(names, IsSubject);
  return found == names.end() ? std::string() : std::string(*found);
}

std::string SubjectClient(std::string_view subject) {
  return absl::StrCat("tls:", absl::string_view(subject.data(), subject.size()));
}

Identities::Identities(const std::vector<ListenAddress>& listeners, bool subjects)
    : subjects_(subjects) {
  for (const auto& [kind, origin] :
       {std::pair{Kind::kUnix, Origin::kUnix}, std::pair{Kind::kTcp, Origin::kTcp}}) {
    if (std::ranges::all_of(listeners,
                            [kind = kind](const auto& each) { return each.kind == kind; })) {
      only_ = origin;
    }
  }
}

Peer Identities::Of(const grpc::CallbackServerContext& context) const {
  Peer peer{.origin = Of([&context] { return context.peer(); })};
  if (subjects_ && peer.origin == Origin::kTcp) {
    if (const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context()) {
      peer.subject = SubjectOf(*auth);
    }
  }
  return peer;
}

Origin Identities::Of(absl::FunctionRef<std::string()> peer) const {
  if (only_.has_value()) return *only_;
  return peer().starts_with("unix:") ? Origin::kUnix : Origin::kTcp;
}

}  // namespace tetrad
