// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample_fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/exactness.h"
#include "kernels/float16.h"
#include "kernels/quantize.h"

namespace tetrad {
namespace {

constexpr uint8_t kScaleOne = 0x38;
constexpr uint8_t kScaleTwo = 0x40;

// One NVFP4 operand being filled.
struct Codes {
  uint8_t* codes;
  uint8_t* scales;
  ScaleLayout layout;
  int64_t rows;
  int64_t k;

  uint8_t* row(int64_t index) const { return codes + CodeBytes(index, k); }
  uint8_t& scale(int64_t index, int64_t block) const {
    return scales[ScaleOffset(layout, index, block, k)];
  }
};

template <class Draw>
void FillScales(const Codes& to, const Draw& draw) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t block = 0; block < to.k / kScaleBlock; ++block) to.scale(row, block) = draw();
  }
}

void FillContestCodes(Random& random, const Codes& to) {
  for (int64_t i = 0; i < CodeBytes(to.rows, to.k); i += 4) {
    const uint64_t bits = random.Next();
    for (int j = 0; j < 4; ++j) {  // bytes 0 .. 254, then without the high magnitude bit
      const auto byte = static_cast<uint32_t>(((bits >> (j * 16) & 0xFFFF) * 255) >> 16);
      to.codes[i + j] = static_cast<uint8_t>(byte & 0xBB);
    }
  }
  FillScales(to, [&] { return random.OneIn(2) ? kScaleOne : kScaleTwo; });
}

void FillGeneralCodes(Random& random, const Codes& to) {
  for (int64_t i = 0; i < CodeBytes(to.rows, to.k); i += 8) {
    const uint64_t bits = random.Next();
    std::memcpy(to.codes + i, &bits, sizeof(bits));
  }
  FillScales(to, [&] { return static_cast<uint8_t>(random.Below(kUe4m3Nan)); });
}

void FillNormalCodes(Random& random, const Codes& to) {
  std::vector<float> row(static_cast<size_t>(to.k));
  std::vector<uint8_t> scales(static_cast<size_t>(to.k / kScaleBlock));
  for (int64_t r = 0; r < to.rows; ++r) {
    for (float& value : row) value = random.Normal();
    const FloatMatrix x{.data = row.data(), .rows = 1, .k = to.k, .row_stride = to.k};
    // Bounded and finite: never refused.
    (void)Quantize(x, 1.0f, {}, {to.row(r), scales.data(), ScaleLayout::kLinear});
    for (size_t block = 0; block < scales.size(); ++block) {
      to.scale(r, static_cast<int64_t>(block)) = scales[block];
    }
  }
}

// Keeps a row's integers, in granules, within what the exact sums allow.
class Budget {
 public:
  // `mean` is the expected magnitude of one of `k` values.
  Budget(double granules, double mean, int64_t k)
      : left_(granules),
        keep_(static_cast<uint32_t>(std::min(1.0, 0.9 * granules / (mean * k)) * 0xFFFFFFFF)) {}

  bool Take(Random& random, double magnitude) {
    const auto draw = static_cast<uint32_t>(random.Next());
    if (draw > keep_ || magnitude > left_) return false;
    left_ -= magnitude;
    return true;
  }

 private:
  double left_;
  uint32_t keep_;
};

// Scales are 8 .. 15 or their doubles times a power of two of the row's own
// (1 .. 15 where that is the least, subnormals included), so a row's values are
// integers up to 360 times its granule.
constexpr double kExactCodePeak = 12 * 30;
constexpr double kExactCodeMean = 4.5 * 17.25;

void FillExactCodes(Random& random, const Codes& to, int exponents, double granules) {
  constexpr int kLeastExponent = -6;
  constexpr int kExponents = 14;
  const int lowest = kLeastExponent + random.Between(0, kExponents - exponents);
  for (int64_t r = 0; r < to.rows; ++r) {
    const int exponent = lowest + random.Between(0, exponents - 1);
    Budget budget(granules, kExactCodeMean, to.k);
    for (int64_t block = 0; block < to.k / kScaleBlock; ++block) {
      const int doubled = static_cast<int>(random.Below(2));
      const int least = exponent == kLeastExponent && doubled == 0 ? 1 : 8;
      const int mantissa = random.Between(least, 15);
      const int byte = std::min(((exponent + 6 + doubled) << 3) + mantissa, kUe4m3Nan - 1);
      to.scale(r, block) = static_cast<uint8_t>(byte);
      for (int i = 0; i < kScaleBlock; i += 2) {
        uint8_t pair = 0;
        for (int shift = 0; shift < 8; shift += 4) {
          const auto code = static_cast<uint8_t>(random.Below(16));
          const double magnitude = std::fabs(DecodeE2m1(code)) * 2 * (mantissa << doubled);
          if (budget.Take(random, magnitude)) pair |= static_cast<uint8_t>(code << shift);
        }
        to.row(r)[(block * kScaleBlock + i) / 2] = pair;
      }
    }
  }
}

uint16_t EncodeActivation(ActivationType type, float value) {
  return type == ActivationType::kFp16 ? EncodeFp16(value) : EncodeBf16(value);
}

// 16-bit activations of one row from a function of the column.
template <class Draw>
void FillWideRow(ActivationType type, uint8_t* row, int64_t k, const Draw& draw) {
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t bits = EncodeActivation(type, draw());
    std::memcpy(row + i * 2, &bits, sizeof(bits));
  }
}

// Integers of a few, half or all bits the type has, times a power of two of the
// row's own.
void FillExactWideRow(Random& random, ActivationType type, uint8_t* row, int64_t k, int exponents,
                      double granules) {
  const int most = type == ActivationType::kFp16 ? 11 : 8;
  const int widths[] = {3, 6, most};
  const int width = widths[random.Below(3)];
  const int exponent = random.Between(-exponents, 0);
  const int limit = (1 << width) - 1;
  Budget budget(granules, limit / 2.0, k);
  FillWideRow(type, row, k, [&] {
    const int value = random.Between(-limit, limit);
    return budget.Take(random, std::abs(value)) ? std::ldexp(static_cast<float>(value), exponent)
                                                : 0.0f;
  });
}

void FillWeights(const ProblemTypes& types, DataKind kind, Random& random, int exponents,
                 const Destination& to, const GroupProblem& group) {
  const Codes codes{to.b, to.b_scales, types.b_scale_layout, group.n, group.k};
  switch (kind) {
    case DataKind::kContest:
      return FillContestCodes(random, codes);
    case DataKind::kExact:
      return FillExactCodes(random, codes, exponents, HUGE_VAL);
    case DataKind::kGeneral:
      return FillGeneralCodes(random, codes);
    case DataKind::kNormal:
      return FillNormalCodes(random, codes);
  }
}

void FillNvfp4Activations(const ProblemTypes& types, DataKind kind, Random& random, int exponents,
                          double granules, const Destination& to, const GroupProblem& group) {
  const Codes codes{to.a, to.a_scales, types.a_scale_layout, group.m, group.k};
  switch (kind) {
    case DataKind::kContest:
      FillContestCodes(random, codes);
      break;
    case DataKind::kExact:
      FillExactCodes(random, codes, exponents, granules);
      break;
    case DataKind::kGeneral:
      FillGeneralCodes(random, codes);
      break;
    case DataKind::kNormal:
      FillNormalCodes(random, codes);
      break;
  }
  // Bit 7 of an activation's scale means nothing.
  for (int64_t row = 0; row < codes.rows; ++row) {
    for (int64_t block = 0; block < codes.k / kScaleBlock; ++block) {
      if (random.OneIn(4)) codes.scale(row, block) |= 0x80;
    }
  }
}

void FillWideActivations(const ProblemTypes& types, DataKind kind, Random& random, int exponents,
                         double granules, const Destination& to, const GroupProblem& group) {
  for (int64_t r = 0; r < group.m; ++r) {
    uint8_t* row = to.a + r * group.k * 2;
    if (kind == DataKind::kExact) {
      FillExactWideRow(random, types.a_type, row, group.k, exponents, granules);
    } else if (kind == DataKind::kContest) {
      FillWideRow(types.a_type, row, group.k, [&] {
        const auto code = static_cast<uint8_t>(random.Below(16) & 0xB);
        return random.OneIn(2) ? DecodeE2m1(code) : 2 * DecodeE2m1(code);
      });
    } else {
      FillWideRow(types.a_type, row, group.k, [&] { return random.Normal(); });
    }
  }
}

// An alpha with a full significand and either sign that keeps every output
// within the type, given what the operands can reach.
float ChooseAlpha(const ProblemTypes& types, DataKind kind, Random& random,
                  const GroupProblem& group, const std::vector<RowRange>& weights) {
  if (kind == DataKind::kContest) return 1.0f;
  double a_reach = 0;
  const std::vector<RowRange> activations = ActivationRanges(types, group);
  for (size_t row = 0; row < activations.size(); ++row) {
    const RowRange& range = activations[row];
    const double reach = IsExact(kind) ? range.sum : std::sqrt(range.squares);
    a_reach = std::max(a_reach, reach * (group.row_scale != nullptr ? group.row_scale[row] : 1));
  }
  double b_reach = 0;
  for (const RowRange& range : weights) {
    b_reach = std::max(b_reach, IsExact(kind) ? range.peak : std::sqrt(range.squares));
  }
  const int spare = types.c_type == OutputType::kFp16 ? 15 : random.Between(0, 60);
  const double reach = a_reach * b_reach;
  const int exponent = reach > 0 ? spare - 2 - std::ilogb(reach) : 0;
  const float alpha = std::ldexp(random.Significand(), exponent);
  return random.OneIn(2) ? alpha : -alpha;
}

}  // namespace

void FillJunk(Random& random, std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t bits = random.Next();
    const uint64_t mask = random.Next();
    for (size_t j = i; j < std::min(i + 8, bytes.size()); ++j) {
      const bool nan = (mask >> ((j - i) * 8) & 3) == 0;
      bytes[j] = nan ? std::byte{kUe4m3Nan} : static_cast<std::byte>(bits >> ((j - i) * 8) & 0xFF);
    }
  }
}

void FillGroup(const ProblemTypes& types, DataKind kind, Random& random, const Destination& to,
               GroupProblem* group) {
  // FP16 results span 40 binades: rows may differ by few without vanishing.
  const int exponents = types.c_type == OutputType::kFp16 ? 3 : 14;
  FillWeights(types, kind, random, exponents, to, *group);
  std::vector<RowRange> weights;
  if (kind != DataKind::kContest) weights = WeightRanges(types, *group);
  double peak_granules = 1;
  for (const RowRange& range : weights) {
    peak_granules = std::max(peak_granules, range.peak / range.granule);
  }
  const double granules = std::floor((0x1p24 - 1) / peak_granules);
  if (types.a_type == ActivationType::kNvfp4) {
    FillNvfp4Activations(types, kind, random, exponents, granules, to, *group);
  } else {
    FillWideActivations(types, kind, random, exponents, granules, to, *group);
  }
  if (to.row_scale != nullptr) {
    const int most = kind == DataKind::kContest ? -1 : 2;  // its FP16 outputs have no room
    for (int64_t row = 0; row < group->m; ++row) {
      to.row_scale[row] = std::ldexp(random.Significand(), random.Between(-3, most));
    }
  }
  group->alpha = ChooseAlpha(types, kind, random, *group, weights);
}

}  // namespace tetrad
