// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/percentiles.h"

#include <algorithm>
#include <cmath>

namespace tetrad::cli {

double Percentile(std::span<const double> sorted, double percent) {
  // Multiplied before it is divided: 99 % of 100 values are 99, not 99.00000000000001.
  const double rank = std::ceil(percent * static_cast<double>(sorted.size()) / 100);
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

Percentiles PercentilesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.p50 = Percentile(values, 50),
          .p90 = Percentile(values, 90),
          .p99 = Percentile(values, 99),
          .max = values.back()};
}

}  // namespace tetrad::cli
