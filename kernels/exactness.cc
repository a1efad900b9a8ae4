// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exactness.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "kernels/float16.h"
#include "kernels/reference.h"

namespace tetrad {
namespace {

constexpr double kExactGranules = 0x1p24;

// The lowest set bit of a finite nonzero value, whose FP64 form is normal.
double LowestBit(double value) {
  constexpr int kMantissaBits = 52;
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t mantissa = (bits & ((uint64_t{1} << kMantissaBits) - 1)) | uint64_t{1}
                                                                                << kMantissaBits;
  const int exponent = static_cast<int>(bits >> kMantissaBits & 0x7FF) - 1023 - kMantissaBits;
  return std::ldexp(1.0, exponent + std::countr_zero(mantissa));
}

RowRange Measure(const std::vector<double>& values) {
  RowRange range;
  bool any = false;
  for (const double value : values) {
    const double magnitude = std::fabs(value);
    if (magnitude == 0) continue;
    range.sum += magnitude;
    range.squares += magnitude * magnitude;
    range.peak = std::max(range.peak, magnitude);
    const double lowest = LowestBit(magnitude);
    range.granule = any ? std::min(range.granule, lowest) : lowest;
    any = true;
  }
  return range;
}

}  // namespace

std::vector<RowRange> ActivationRanges(const ProblemTypes& types, const GroupProblem& group) {
  std::vector<RowRange> ranges;
  std::vector<double> values(static_cast<size_t>(group.k));
  for (int64_t row = 0; row < group.m; ++row) {
    ActivationRow(types, group, row, values.data());
    ranges.push_back(Measure(values));
  }
  return ranges;
}

std::vector<RowRange> WeightRanges(const ProblemTypes& types, const GroupProblem& group) {
  std::vector<RowRange> ranges;
  std::vector<double> values(static_cast<size_t>(group.k));
  for (int64_t row = 0; row < group.n; ++row) {
    WeightRow(types, group, row, values.data());
    ranges.push_back(Measure(values));
  }
  return ranges;
}

absl::Status CheckExact(const ProblemTypes& types, const GroupProblem& group) {
  double peak = 0;
  double peak_granules = 0;
  for (const RowRange& range : WeightRanges(types, group)) {
    peak = std::max(peak, range.peak);
    peak_granules = std::max(peak_granules, range.peak / range.granule);
  }
  const double limit = types.c_type == OutputType::kFp16 ? kFp16Max : kBf16Max;
  int64_t row = 0;
  for (const RowRange& range : ActivationRanges(types, group)) {
    const double granules = range.sum / range.granule * peak_granules;
    if (!(granules < kExactGranules)) {
      return absl::FailedPreconditionError(absl::StrCat("row ", row, ": sum |ab| may reach ",
                                                        granules, " granules; exact below 2^24"));
    }
    const double row_scale = group.row_scale != nullptr ? group.row_scale[row] : 1.0;
    const double reach = std::fabs(range.sum * peak * group.alpha * row_scale);
    if (!(reach <= limit)) {
      return absl::FailedPreconditionError(
          absl::StrCat("row ", row, ": |C| may reach ", reach, "; the type ends at ", limit));
    }
    ++row;
  }
  return absl::OkStatus();
}

}  // namespace tetrad
