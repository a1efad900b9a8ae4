// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Time as step functions see it: injected, monotonic, in nanoseconds.
#pragma once

#include <cstdint>
#include <functional>

namespace tetrad {

using Instant = int64_t;
inline constexpr Instant kNever = INT64_MAX;

// Reads the clock; allocates nothing.
using Clock = std::function<Instant()>;

// `nanoseconds` from `now`, at most kNever.
constexpr Instant After(Instant now, int64_t nanoseconds) {
  return nanoseconds > kNever - now ? kNever : now + nanoseconds;
}

}  // namespace tetrad
