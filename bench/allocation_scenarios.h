// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Allocation scenarios: what a daemon asks its pool for, made up from a seed.
//
//   serving  weights of six models stay; plans come and go with their staging
//            sets, the least recently used leaving; leases of clients hold a
//            few blocks each for a while and end together.
//   churn    small blocks that live long between large ones that live short and
//            grow from phase to phase; weights are replaced, the new before the
//            old goes. Meant to be hard.
//
// Sizes are those of NVFP4 operands of the shapes in docs/design.md at token
// counts that are mostly small and sometimes large. A name and a seed mean the
// same log everywhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

#include "engine/allocation_log.h"

namespace tetrad {

// Records about `events` events; `now_us` is the clock that `log` reads.
absl::Status GenerateScenario(std::string_view name, uint64_t seed, int64_t events,
                              AllocationLog& log, int64_t& now_us);

}  // namespace tetrad
