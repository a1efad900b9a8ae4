// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// main.contest.bit_equal, main.random.ok and sm90.random.ok: results right on an
// engine in this process.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Shapes of the contest, its benchmarks and its tests, all of whose elements
// have the reference's bits.
absl::StatusOr<Measured> ContestBitEqual(const Setting& setting);
// Random legal signatures right on exact and on general data.
absl::StatusOr<Measured> RandomOk(const Setting& setting);
// The same of DrawSm90Case() on a device of capability 9.0. FAILED_PRECONDITION if a
// variant of the kernel was chosen for too few of them.
absl::StatusOr<Measured> Sm90RandomOk(const Setting& setting);

}  // namespace tetrad::bars
