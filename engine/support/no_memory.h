// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The border at which lack of host memory becomes a status.
#pragma once

#include <new>

#include "absl/status/status.h"

#include "engine/support/error_detail.h"

namespace tetrad {

// RESOURCE_EXHAUSTED, with a message if there is memory for one.
inline absl::Status NoMemory() {
  try {
    return ReasonError(Reason::kHostMemory, "the daemon is out of host memory");
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

// What `body` returns (a Status or StatusOr), or NoMemory() if it ran out.
template <typename Body>
auto CatchNoMemory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace tetrad
