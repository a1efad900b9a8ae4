// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Judges outputs of a grouped GEMM against the FP64 reference.
//
// Check::kBits, for data whose sums are exact: every element must have the
// reference's bits, -0 equal to +0. Check::kBound, for any other data: every
// element within the worst case its accumulator allows, and the Frobenius error
// of all elements at most 1.25 times that of merely rounding the FP64 result to
// the output type (FP32 outputs: a recorded multiple). docs/numerics.md derives
// the bounds. Comparison is not thread-safe: one a thread, then Merge.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/problem.h"
#include "kernels/reference.h"

namespace tetrad {

enum class Check : uint8_t { kBits = 0, kBound = 1 };

// What produced the outputs: one FP32 chain rounded to nearest (the CPU), or
// tensor cores, which align the terms of a step and truncate.
enum class Accumulator : uint8_t { kSerialFp32 = 0, kTensorCore = 1 };

struct Verdict {
  bool pass = false;
  int64_t elements = 0;
  int64_t failures = 0;  // elements that break the bit or bound condition
  // The worst element: kBits: the first that differs; kBound: the largest error
  // as a share of what is allowed.
  double worst = 0;
  int32_t group = -1, row = -1, column = -1;
  uint32_t expected_bits = 0, actual_bits = 0;  // of the worst element
  double frobenius_ratio = 0;
  double frobenius_limit = 0;

  std::string ToString() const;
};

// The largest |acc - exact| of a sum of `k` products whose magnitudes add up to
// `magnitude`.
double AccumulationBound(Accumulator accumulator, int64_t k, double magnitude);

// The largest Frobenius ratio that passes.
double FrobeniusLimit(OutputType type, Accumulator accumulator, int64_t k);

// Fewer elements than this say nothing statistical: only their bounds count. Of FP32 outputs more
// are needed: 300 of two columns were seen at 1.3 times the limit, each within a hundredth of its
// bound (one column that cancels is half of such a norm).
constexpr int64_t FrobeniusMinimumElements(OutputType type) {
  return type == OutputType::kFp32 ? 1024 : 256;
}

class Comparison {
 public:
  Comparison(const ProblemTypes& types, Check check, Accumulator accumulator)
      : types_(types), check_(check), accumulator_(accumulator) {}

  // Compares the block's part of the group's output.
  void Add(const GroupProblem& group, const ReferenceBlock& block);
  void Merge(const Comparison& other);
  Verdict Finish() const;

 private:
  void AddElement(const GroupProblem& group, const ReferenceBlock& block, int32_t row,
                  int32_t column);
  double ShareOfBound(const GroupProblem& group, int32_t row, double sum, double magnitude,
                      float actual);
  void Note(double share, const Tile& area, int32_t row, int32_t column, uint32_t expected,
            uint32_t actual);

  ProblemTypes types_;
  Check check_;
  Accumulator accumulator_;
  Verdict verdict_;
  double error_squares_ = 0;
  double rounding_squares_ = 0;
  int64_t longest_k_ = 0;
};

struct VerifyOptions {
  Check check = Check::kBits;
  Accumulator accumulator = Accumulator::kSerialFp32;
  int threads = 1;
  // Multiply-adds of the reference to spend; above it, tiles drawn by `seed`
  // and the last tile of every group are compared instead of all.
  int64_t max_products = INT64_MAX;
  uint64_t seed = 1;
};

// Compares the outputs of all groups, on `threads` threads of its own.
Verdict Verify(const ProblemTypes& types, std::span<const GroupProblem> groups,
               const VerifyOptions& options);

}  // namespace tetrad
