// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/figure.h"

#include <algorithm>
#include <cmath>

namespace tetrad::bars {
namespace {

// Nearest rank: a value that was measured, none is made up between two.
double Rank(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

Measured Counted(int64_t count, std::string remark) {
  const auto value = static_cast<double>(count);
  return {.value = value, .low = value, .high = value, .remark = std::move(remark)};
}

Measured MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.value = Rank(values, 0.5), .low = Rank(values, 0.25), .high = Rank(values, 0.75)};
}

double Median(std::vector<double> values) { return MedianOf(std::move(values)).value; }

}  // namespace tetrad::bars
