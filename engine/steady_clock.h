// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The clock of a running engine.
#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "engine/support/instant.h"

namespace tetrad {

inline Instant SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// When the steady clock will show what the wall clock calls `deadline`; 0 or
// later, kNever if it has none.
inline Instant SteadyInstant(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return kNever;
  const int64_t left = absl::ToInt64Nanoseconds(deadline - absl::Now());
  const Instant now = SteadyNow();
  return left > 0 ? After(now, left) : std::max<Instant>(now + std::max(left, -now), 0);
}

}  // namespace tetrad
