// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/compare.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr double kFp32Unit = 0x1p-24;  // relative error of rounding to nearest
constexpr double kHalfPrecisionLimit = 1.25;
// Recorded multiples for FP32 outputs (docs/numerics.md, section 6).
constexpr double kSerialFrobeniusPerRootK = 0.75;
constexpr double kTensorCoreFrobeniusPerK = 0.15;
constexpr double kFrobeniusFloor = 1.75;  // three roundings instead of one: sqrt(3)

// Largest error of rounding a value of this magnitude to the type.
double RoundingBound(OutputType type, double magnitude) {
  switch (type) {
    case OutputType::kFp16:
      return std::max(magnitude * 0x1p-11, 0x1p-25);
    case OutputType::kBf16:
      return std::max(magnitude * 0x1p-8, 0x1p-134);
    case OutputType::kFp32:
      return 0;  // the value is FP32 already
  }
  return 0;
}

// From here on a value rounds to infinity.
double OverflowThreshold(OutputType type) {
  switch (type) {
    case OutputType::kFp16:
      return 65520;
    case OutputType::kBf16:
      return 0x1.FFp127;
    case OutputType::kFp32:
      return 0x1.FFFFFFp127;
  }
  return 0;
}

bool SameBits(OutputType type, uint32_t a, uint32_t b) {
  const uint32_t magnitude = type == OutputType::kFp32 ? 0x7FFFFFFFu : 0x7FFFu;
  return a == b || ((a | b) & magnitude) == 0;
}

double RowFactor(const GroupProblem& group, int64_t row) {
  return static_cast<double>(group.alpha) *
         (group.row_scale != nullptr ? group.row_scale[row] : 1.0f);
}

}  // namespace

double AccumulationBound(Accumulator accumulator, int64_t k, double magnitude) {
  const double slack = 1 + 0x1p-10;  // second-order terms, K up to 2^13 and far beyond
  if (accumulator == Accumulator::kSerialFp32) return k * kFp32Unit * slack * magnitude;
  // 18 truncations of at most 2^-23 of the running magnitude in each step of 16.
  return 18.0 / 16.0 * k * 2 * kFp32Unit * slack * magnitude;
}

double FrobeniusLimit(OutputType type, Accumulator accumulator, int64_t k) {
  if (type != OutputType::kFp32) return kHalfPrecisionLimit;
  return kFrobeniusFloor + (accumulator == Accumulator::kSerialFp32
                                ? kSerialFrobeniusPerRootK * std::sqrt(static_cast<double>(k))
                                : kTensorCoreFrobeniusPerK * static_cast<double>(k));
}

double Comparison::ShareOfBound(const GroupProblem& group, int32_t row, double sum,
                                double magnitude, float actual) {
  const double infinite = std::numeric_limits<double>::infinity();
  const double factor = RowFactor(group, row);
  const double exact = sum * factor;
  if (std::isnan(exact) || IsNanBits(actual)) {
    return std::isnan(exact) == IsNanBits(actual) ? 0 : infinite;
  }
  double bound = std::fabs(factor) * AccumulationBound(accumulator_, group.k, magnitude);
  bound += (std::fabs(exact) + bound) * 2 * kFp32Unit * (1 + kFp32Unit) + 0x1p-149;
  const double reach = std::fabs(exact) + bound;
  bound += RoundingBound(types_.c_type, reach);
  const double threshold = OverflowThreshold(types_.c_type);
  if (std::isinf(actual)) {
    return reach >= threshold && std::signbit(actual) == std::signbit(exact) ? 0 : infinite;
  }
  if (std::isinf(exact)) return infinite;
  const double error = std::fabs(actual - exact);
  if (std::fabs(exact) < threshold) {
    const double rounding =
        OutputValue(types_.c_type, OutputBits(types_.c_type, static_cast<float>(exact))) - exact;
    error_squares_ += error * error;
    rounding_squares_ += rounding * rounding;
  }
  return error == 0 ? 0 : error / bound;
}

void Comparison::Note(double share, const Tile& area, int32_t row, int32_t column,
                      uint32_t expected, uint32_t actual) {
  if (share > 1) ++verdict_.failures;
  if (verdict_.group >= 0 && share <= verdict_.worst) return;
  verdict_.worst = share;
  verdict_.group = area.group;
  verdict_.row = row;
  verdict_.column = column;
  verdict_.expected_bits = expected;
  verdict_.actual_bits = actual;
}

void Comparison::AddElement(const GroupProblem& group, const ReferenceBlock& block, int32_t row,
                            int32_t column) {
  const Tile& area = block.area;
  const size_t at = static_cast<size_t>(row - area.row) * area.columns + (column - area.column);
  const uint32_t expected = block.bits[at];
  const uint32_t actual = LoadOutput(types_, group, row, column);
  ++verdict_.elements;
  double share = SameBits(types_.c_type, expected, actual) ? 0 : HUGE_VAL;
  if (check_ == Check::kBound) {
    const float value = OutputValue(types_.c_type, actual);
    const bool canonical = !IsNanBits(value) || actual == OutputBits(types_.c_type, value);
    share =
        canonical ? ShareOfBound(group, row, block.sum[at], block.magnitude[at], value) : HUGE_VAL;
  }
  Note(share, area, row, column, expected, actual);
}

void Comparison::Add(const GroupProblem& group, const ReferenceBlock& block) {
  const Tile& area = block.area;
  longest_k_ = std::max<int64_t>(longest_k_, group.k);
  for (int32_t row = area.row; row < area.row + area.rows; ++row) {
    for (int32_t column = area.column; column < area.column + area.columns; ++column) {
      AddElement(group, block, row, column);
    }
  }
}

void Comparison::Merge(const Comparison& other) {
  const Verdict& from = other.verdict_;
  const int64_t elements = verdict_.elements + from.elements;
  const int64_t failures = verdict_.failures + from.failures;
  if (from.group >= 0 && (verdict_.group < 0 || from.worst > verdict_.worst)) verdict_ = from;
  verdict_.elements = elements;
  verdict_.failures = failures;
  error_squares_ += other.error_squares_;
  rounding_squares_ += other.rounding_squares_;
  longest_k_ = std::max(longest_k_, other.longest_k_);
}

Verdict Comparison::Finish() const {
  Verdict verdict = verdict_;
  verdict.pass = verdict.failures == 0;
  if (check_ == Check::kBits) return verdict;
  verdict.frobenius_limit = FrobeniusLimit(types_.c_type, accumulator_, longest_k_);
  verdict.frobenius_ratio = error_squares_ == 0 ? 0 : std::sqrt(error_squares_ / rounding_squares_);
  if (verdict.elements >= FrobeniusMinimumElements(types_.c_type)) {
    verdict.pass = verdict.pass && verdict.frobenius_ratio <= verdict.frobenius_limit;
  }
  return verdict;
}

std::string Verdict::ToString() const {
  char text[256];
  std::snprintf(text, sizeof(text),
                "%s: %lld of %lld elements fail; worst %.3g at group %d row %d column %d "
                "(expected 0x%x, actual 0x%x); Frobenius ratio %.4f, limit %.4f",
                pass ? "pass" : "fail", static_cast<long long>(failures),
                static_cast<long long>(elements), worst, group, row, column, expected_bits,
                actual_bits, frobenius_ratio, frobenius_limit);
  return text;
}

namespace {

// Tiles that cover every output, or a seeded choice of them within the budget.
std::vector<Tile> ChooseTiles(std::span<const GroupProblem> groups, const VerifyOptions& options) {
  const double budget = static_cast<double>(options.max_products);
  double products = 0;
  for (const GroupProblem& group : groups) {
    products += static_cast<double>(group.m) * group.n * group.k;
  }
  // Large tiles reuse expanded operands, small ones spread a sample further.
  const bool all = products <= budget;
  const int32_t rows = all ? 256 : 16;
  const int32_t columns = all ? 256 : 16;
  std::vector<Tile> tiles;
  std::vector<Tile> last;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupProblem& group = groups[g];
    for (int32_t row = 0; row < group.m; row += rows) {
      for (int32_t column = 0; column < group.n; column += columns) {
        tiles.push_back({static_cast<int32_t>(g), row, std::min(rows, group.m - row), column,
                         std::min(columns, group.n - column)});
      }
    }
    if (group.m > 0) last.push_back(tiles.back());
  }
  if (all) return tiles;
  Random random(options.seed);
  double left = budget;
  while (left > 0) {
    const Tile& tile = tiles[random.Below(static_cast<uint32_t>(tiles.size()))];
    left -= static_cast<double>(tile.rows) * tile.columns * groups[tile.group].k;
    last.push_back(tile);
  }
  return last;
}

}  // namespace

Verdict Verify(const ProblemTypes& types, std::span<const GroupProblem> groups,
               const VerifyOptions& options) {
  const std::vector<Tile> tiles = ChooseTiles(groups, options);
  const auto magnitude = options.check == Check::kBound ? WithMagnitude::kYes : WithMagnitude::kNo;
  std::vector<Comparison> parts(static_cast<size_t>(std::max(options.threads, 1)),
                                Comparison(types, options.check, options.accumulator));
  std::atomic<size_t> next{0};
  const auto work = [&](Comparison& part) {
    for (size_t i = next++; i < tiles.size(); i = next++) {
      const GroupProblem& group = groups[tiles[i].group];
      part.Add(group, ComputeReference(types, group, tiles[i], magnitude));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < parts.size(); ++i) threads.emplace_back(work, std::ref(parts[i]));
    work(parts[0]);
  }
  for (size_t i = 1; i < parts.size(); ++i) parts[0].Merge(parts[i]);
  return parts[0].Finish();
}

}  // namespace tetrad
