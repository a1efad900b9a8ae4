// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The FP64 oracle: what each output element must be, from plain loops that
// share nothing with the fast kernels but the codecs of one value.
//
// A block of a group's output is computed at a time, so that callers can spread
// blocks over threads or look only at samples of a huge output. Thread-safe;
// allocates the result and working memory of (rows + a few columns) * K doubles.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/problem.h"

namespace tetrad {

enum class WithMagnitude : bool { kNo = false, kYes = true };

// All arrays are [rows][columns].
struct ReferenceBlock {
  Tile area;
  std::vector<double> sum;        // of a * b over k, to FP64 accuracy
  std::vector<double> magnitude;  // of |a * b| over k; empty unless asked for
  std::vector<uint32_t> bits;     // of C when the sum is exact in FP32: its epilogue, converted
};

// `area` must lie inside the group; area.group is only copied.
ReferenceBlock ComputeReference(const ProblemTypes& types, const GroupProblem& group,
                                const Tile& area, WithMagnitude with_magnitude);

// The values of one row of activations, or of weights: group.k of them.
void ActivationRow(const ProblemTypes& types, const GroupProblem& group, int64_t row, double* out);
void WeightRow(const ProblemTypes& types, const GroupProblem& group, int64_t row, double* out);

// The epilogue of one element: fl32(fl32(acc * alpha) * row_scale).
float ScaledValue(const GroupProblem& group, int64_t row, float acc);
// Bits of C for a value after the epilogue, and the value of such bits.
uint32_t OutputBits(OutputType type, float value);
float OutputValue(OutputType type, uint32_t bits);
// Bits of element (row, column) in the memory of C.
uint32_t LoadOutput(const ProblemTypes& types, const GroupProblem& group, int64_t row,
                    int64_t column);

}  // namespace tetrad
