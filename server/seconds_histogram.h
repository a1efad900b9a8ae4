// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SecondsHistogram: counts durations in buckets whose bounds are the same
// everywhere, so that histograms of many daemons can be added.
//
// Thread-safe, lock-free: an observation is two relaxed additions, which the
// library's own histogram does under a mutex. A collection reads each bucket
// once and derives the rest, so buckets never fall with `le`, the last equals
// the count, and no bucket goes back between collections.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

#include "prometheus/client_metric.h"

namespace tetrad {

class SecondsHistogram {
 public:
  // Literals, because computed bounds would print as 9.999999999999999e-06.
  static constexpr std::array<double, 23> kBounds = {2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                                     1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1,  0.2,
                                                     0.5,  1,    2,    5,    10,   20,   50};

  void Observe(int64_t nanoseconds) {
    const auto bound = std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), nanoseconds);
    counts_[static_cast<size_t>(bound - kBoundsNs.begin())].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(nanoseconds, std::memory_order_relaxed);
  }

  prometheus::ClientMetric::Histogram Collect() const {
    prometheus::ClientMetric::Histogram out;
    out.bucket.reserve(counts_.size());
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      cumulative += counts_[i].load(std::memory_order_relaxed);
      const double bound =
          i < kBounds.size() ? kBounds[i] : std::numeric_limits<double>::infinity();
      out.bucket.push_back({.cumulative_count = cumulative, .upper_bound = bound});
    }
    out.sample_count = cumulative;
    out.sample_sum = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
    return out;
  }

 private:
  // Compared as whole numbers, so that a duration on a bound is below it.
  static constexpr auto kBoundsNs = [] {
    std::array<int64_t, kBounds.size()> bounds{};
    for (size_t i = 0; i < bounds.size(); ++i) {
      const double nanoseconds = kBounds[i] * 1e9;  // whole but for the rounding of the product
      bounds[i] = static_cast<int64_t>(nanoseconds);
      if (nanoseconds - static_cast<double>(bounds[i]) >= 0.5) ++bounds[i];
    }
    return bounds;
  }();

  std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<int64_t> sum_ns_{0};
};

}  // namespace tetrad
