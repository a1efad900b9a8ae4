// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// main.contest.bit_equal and main.random.ok: results right on an engine in this
// process.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Shapes of the contest, its benchmarks and its tests, all of whose elements
// have the reference's bits.
absl::StatusOr<Measured> ContestBitEqual(const Setting& setting);
// Random legal signatures right on exact and on general data.
absl::StatusOr<Measured> RandomOk(const Setting& setting);

}  // namespace tetrad::bars
