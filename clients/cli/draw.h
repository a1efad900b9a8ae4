// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random legal signatures: every axis of the data contract drawn at once, with
// the values that break kernels (empty groups, one row, one past a tile, odd
// N, K of one MMA step) drawn far more often than chance would. Sizes are
// capped so that a thousand cases take minutes on two cores. A pure function
// of the seed, the same on every platform.
#pragma once

#include <array>
#include <cstdint>

#include "clients/cli/grouped_case.h"
#include "kernels/sample.h"

namespace tetrad::cli {

// Multiply-adds of one drawn case at most.
inline constexpr double kMaxDrawnMacs = 6e6;

GroupedCase DrawCase(uint64_t seed);

// What to verify a drawn case with: data whose sums are exact, for bit equality,
// then general data, for the bound.
std::array<DataKind, 2> DataKindsFor(const GroupedCase& c);

}  // namespace tetrad::cli
