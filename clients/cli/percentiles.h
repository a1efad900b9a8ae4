// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Percentiles by nearest rank: the smallest value that at least so many percent
// of all are not above. Each is a value that was measured, none is made up
// between two. Pure functions.
#pragma once

#include <span>
#include <vector>

namespace tetrad::cli {

// `sorted` ascending and not empty; `percent` in (0, 100].
double Percentile(std::span<const double> sorted, double percent);

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, max = 0;
};
// Of values in any order, at least one.
Percentiles PercentilesOf(std::vector<double> values);

}  // namespace tetrad::cli
