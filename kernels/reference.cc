// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/nvfp4.h"

namespace tetrad {
namespace {

constexpr int kColumnsAtOnce = 8;
constexpr int kRowsAtOnce = 2;

void Nvfp4Row(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout, int64_t row,
              int64_t k, double* out) {
  std::array<double, 16> values;
  for (int i = 0; i < 16; ++i) values[i] = DecodeE2m1(static_cast<uint8_t>(i));
  const uint8_t* row_codes = codes + CodeBytes(row, k);
  for (int64_t block = 0; block < k / kScaleBlock; ++block) {
    const double scale = DecodeUe4m3(scales[ScaleOffset(layout, row, block, k)]);
    for (int64_t i = block * kScaleBlock; i < (block + 1) * kScaleBlock; ++i) {
      out[i] = values[UnpackCode(row_codes, i)] * scale;
    }
  }
}

// Two columns of one k: a register of every target. Left to itself the compiler
// vectorises over k, with shuffles, at a fraction of the speed.
using Pair [[gnu::vector_size(16), gnu::may_alias]] = double;
constexpr int kPairs = kColumnsAtOnce / 2;

// sums[row][column] = sum over k of a[row][k] * b[k][column], or of magnitudes.
template <int kRows, WithMagnitude kMagnitude>
void Accumulate(const double* a, const double* b, int64_t k, double (*sums)[kColumnsAtOnce]) {
  Pair acc[kRows][kPairs] = {};
  for (int64_t i = 0; i < k; ++i) {
    const Pair* weights = reinterpret_cast<const Pair*>(b + i * kColumnsAtOnce);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kPairs; ++c) {
        Pair product = weights[c] * a[r * k + i];
        if constexpr (kMagnitude == WithMagnitude::kYes) product = product < 0 ? -product : product;
        acc[r][c] += product;
      }
    }
  }
  std::memcpy(sums, acc, sizeof(acc));
}

// The same for the last row of an odd number.
template <WithMagnitude kMagnitude>
void AccumulateRows(int rows, const double* a, const double* b, int64_t k,
                    double (*sums)[kColumnsAtOnce]) {
  if (rows == kRowsAtOnce) return Accumulate<kRowsAtOnce, kMagnitude>(a, b, k, sums);
  for (int r = 0; r < rows; ++r) Accumulate<1, kMagnitude>(a + r * k, b, k, sums + r);
}

}  // namespace

void ActivationRow(const ProblemTypes& types, const GroupProblem& group, int64_t row, double* out) {
  if (types.a_type == ActivationType::kNvfp4) {
    return Nvfp4Row(group.a, group.a_scales, types.a_scale_layout, row, group.k, out);
  }
  for (int64_t i = 0; i < group.k; ++i) {
    uint16_t bits;
    std::memcpy(&bits, group.a + (row * group.k + i) * 2, sizeof(bits));
    out[i] = types.a_type == ActivationType::kFp16 ? DecodeFp16(bits) : DecodeBf16(bits);
  }
}

void WeightRow(const ProblemTypes& types, const GroupProblem& group, int64_t row, double* out) {
  Nvfp4Row(group.b, group.b_scales, types.b_scale_layout, row, group.k, out);
}

float ScaledValue(const GroupProblem& group, int64_t row, float acc) {
  const float scaled = acc * group.alpha;
  return group.row_scale != nullptr ? scaled * group.row_scale[row] : scaled;
}

uint32_t OutputBits(OutputType type, float value) {
  if (type == OutputType::kFp16) return EncodeFp16(value);
  if (type == OutputType::kBf16) return EncodeBf16(value);
  return IsNanBits(value) ? kCanonicalNanFp32 : std::bit_cast<uint32_t>(value);
}

float OutputValue(OutputType type, uint32_t bits) {
  if (type == OutputType::kFp16) return DecodeFp16(static_cast<uint16_t>(bits));
  if (type == OutputType::kBf16) return DecodeBf16(static_cast<uint16_t>(bits));
  return std::bit_cast<float>(bits);
}

uint32_t LoadOutput(const ProblemTypes& types, const GroupProblem& group, int64_t row,
                    int64_t column) {
  const int64_t element = types.c_layout == OutputLayout::kRowMajor ? row * group.c_stride + column
                                                                    : column * group.c_stride + row;
  const int64_t bytes = OutputElementBytes(types.c_type);
  const auto* at = static_cast<const std::byte*>(group.c) + element * bytes;
  if (bytes == 2) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return bits;
  }
  uint32_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

ReferenceBlock ComputeReference(const ProblemTypes& types, const GroupProblem& group,
                                const Tile& area, WithMagnitude with_magnitude) {
  const int64_t k = group.k;
  ReferenceBlock result;
  result.area = area;
  const size_t elements = static_cast<size_t>(area.rows) * area.columns;
  result.sum.resize(elements);
  result.bits.resize(elements);
  if (with_magnitude == WithMagnitude::kYes) result.magnitude.resize(elements);

  std::vector<double> a(static_cast<size_t>(area.rows * k));
  for (int64_t r = 0; r < area.rows; ++r) {
    ActivationRow(types, group, area.row + r, a.data() + r * k);
  }
  std::vector<double> weights(static_cast<size_t>(k));
  std::vector<double> b(static_cast<size_t>(k * kColumnsAtOnce));
  for (int32_t first = 0; first < area.columns; first += kColumnsAtOnce) {
    const int count = std::min(kColumnsAtOnce, area.columns - first);
    for (int c = 0; c < count; ++c) {
      WeightRow(types, group, area.column + first + c, weights.data());
      for (int64_t i = 0; i < k; ++i) b[i * kColumnsAtOnce + c] = weights[i];
    }
    for (int32_t r = 0; r < area.rows; r += kRowsAtOnce) {
      const int rows = std::min(kRowsAtOnce, area.rows - r);
      double sums[kRowsAtOnce][kColumnsAtOnce];
      AccumulateRows<WithMagnitude::kNo>(rows, a.data() + r * k, b.data(), k, sums);
      for (int i = 0; i < rows; ++i) {
        const size_t at = static_cast<size_t>(r + i) * area.columns + first;
        for (int c = 0; c < count; ++c) {
          const float scaled = ScaledValue(group, area.row + r + i, static_cast<float>(sums[i][c]));
          result.sum[at + c] = sums[i][c];
          result.bits[at + c] = OutputBits(types.c_type, scaled);
        }
      }
      if (with_magnitude == WithMagnitude::kNo) continue;
      AccumulateRows<WithMagnitude::kYes>(rows, a.data() + r * k, b.data(), k, sums);
      for (int i = 0; i < rows; ++i) {
        std::copy_n(sums[i], count,
                    &result.magnitude[static_cast<size_t>(r + i) * area.columns + first]);
      }
    }
  }
  return result;
}

}  // namespace tetrad
