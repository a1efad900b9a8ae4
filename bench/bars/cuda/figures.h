// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Figures that stand on CudaDevice itself: main.replay.* and main.portable.S1.
// Built where there is a CUDA toolkit; with another device than a CUDA one each
// is FAILED_PRECONDITION.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Of 10,000 replays of S4 with changing inputs, those whose output is not that
// of a launch without a graph.
absl::StatusOr<Measured> ReplayDifferent(const Setting& setting);
// Device memory that such replays lost after the first hundred.
absl::StatusOr<Measured> ReplayMemoryGrowth(const Setting& setting);
// Launch() to the completion that Poll() gives, over a graph launch to the
// completion word, of the same graph.
absl::StatusOr<Measured> ReplayRatio(const Setting& setting);
// Device time of S1 on the portable kernel.
absl::StatusOr<Measured> PortableS1(const Setting& setting);

}  // namespace tetrad::bars
