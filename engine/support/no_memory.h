// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The border at which lack of host memory becomes a status.
#pragma once

#include <new>

#include "absl/status/status.h"

namespace tetrad {

// What `body` returns (a Status or StatusOr), or RESOURCE_EXHAUSTED if it ran
// out of memory.
template <typename Body>
auto CatchNoMemory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the daemon is out of host memory");
  }
}

}  // namespace tetrad
