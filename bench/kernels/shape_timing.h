// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TimeShape: one shape with some types of activations beside its floors, in turn:
// the rates, our calls, the rates again, for every type, a dozen times round. Each first runs
// unmeasured until the clock is its own (Gpu::Settle).
//
// A share is the median of all floors over that of all times of a call; its spread is
// the quartiles of the single rounds. DATA_LOSS where what was timed computed
// something else than the product.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "bench/kernels/floor_meter.h"
#include "bench/kernels/gpu.h"
#include "bench/kernels/timed_problem.h"
#include "bench/kernels/type_timing.h"

namespace tetrad::bars {

absl::StatusOr<std::vector<TypeTiming>> TimeShape(Gpu& gpu, FloorMeter& meter,
                                                  const ShapeSets& sets,
                                                  std::span<const ActivationType> types);

}  // namespace tetrad::bars
