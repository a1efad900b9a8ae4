// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// main.captures_per_1000: that a warm engine captures nothing.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Captures during 1,000 launches of 8 plans with 16 rotating sets of blocks.
absl::StatusOr<Measured> CapturesPer1000(const Setting& setting);

}  // namespace tetrad::bars
