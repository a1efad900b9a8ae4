// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/identity.h"

#include <algorithm>

namespace tetrad {

using Kind = ListenAddress::Kind;

Identities::Identities(const std::vector<ListenAddress>& listeners) {
  for (const Kind kind : {Kind::kUnix, Kind::kTcp}) {
    if (std::ranges::all_of(listeners, [kind](const auto& each) { return each.kind == kind; })) {
      only_ = kind;
    }
  }
}

std::string Identities::Of(const grpc::CallbackServerContext& context) const {
  return Of([&context] { return context.peer(); });
}

std::string Identities::Of(absl::FunctionRef<std::string()> peer) const {
  const Kind kind = only_.has_value()             ? *only_
                    : peer().starts_with("unix:") ? Kind::kUnix
                                                  : Kind::kTcp;
  return kind == Kind::kUnix ? "anonymous@unix" : "anonymous@tcp";
}

}  // namespace tetrad
