// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether every partial sum of a group is exact in FP32, in whatever order it
// is formed: then any correct kernel must give the same bits.
//
// The granule of a row is the largest power of two that divides all its values.
// All partial sums of element (m, n) are multiples of granule(A row m) *
// granule(B row n) and at most sum |ab|; below 2^24 granules they are exact.
// sum |ab| is bounded here by (sum |a|) * (max |b|). Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "kernels/problem.h"

namespace tetrad {

// What the values of one row reach. Granule 1 for a row of zeros.
struct RowRange {
  double sum = 0;      // of magnitudes
  double squares = 0;  // sum of squares
  double peak = 0;     // largest magnitude
  double granule = 1;
};

std::vector<RowRange> ActivationRanges(const ProblemTypes& types, const GroupProblem& group);
std::vector<RowRange> WeightRanges(const ProblemTypes& types, const GroupProblem& group);

// OK if all sums of the group are exact and no output overflows; otherwise the
// limit that is broken.
absl::Status CheckExact(const ProblemTypes& types, const GroupProblem& group);

}  // namespace tetrad
