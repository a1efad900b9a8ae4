// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/identity.h"

namespace tetrad {

std::string Identify(const grpc::CallbackServerContext& context) {
  return context.peer().starts_with("unix:") ? "anonymous@unix" : "anonymous@tcp";
}

}  // namespace tetrad
