// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/float16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

// What the two types differ in.
struct Format {
  int mantissa_bits;
  int bias;
  uint16_t infinity;
  uint16_t nan;
  float (*decode)(uint16_t);
  uint16_t (*encode)(float);
};

constexpr Format kFormats[] = {
    {10, 15, 0x7C00, kCanonicalNanFp16, &DecodeFp16, &EncodeFp16},
    {7, 127, 0x7F80, kCanonicalNanBf16, &DecodeBf16, &EncodeBf16},
};

double ByDefinition(const Format& format, int bits) {
  const int exponent = (bits & 0x7FFF) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double significand = std::ldexp(mantissa, -format.mantissa_bits) + (exponent != 0 ? 1 : 0);
  const double magnitude = std::ldexp(significand, std::max(exponent, 1) - format.bias);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16Test, EveryPatternDecodesByDefinitionAndSurvivesEncoding) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < 0x10000; ++bits) {
      const float value = format.decode(static_cast<uint16_t>(bits));
      const int magnitude = bits & 0x7FFF;
      if (magnitude > format.infinity) {
        ASSERT_EQ(std::bit_cast<uint32_t>(value), kCanonicalNanFp32);
        ASSERT_EQ(format.encode(value), format.nan);
        continue;
      }
      if (magnitude == format.infinity) {
        ASSERT_EQ(value, bits == magnitude ? HUGE_VALF : -HUGE_VALF);
      } else {
        ASSERT_EQ(value, ByDefinition(format, bits)) << bits;
        ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
      }
      ASSERT_EQ(format.encode(value), bits);
    }
  }
}

// Between every pair of neighbours: the midpoint goes to the even one, the next
// FP32 values on its two sides to the nearer.
TEST(Float16Test, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < format.infinity; ++bits) {
      // Above the last finite value the midpoint is where the next would have been.
      const double midpoint = (ByDefinition(format, bits) + ByDefinition(format, bits + 1)) / 2;
      const auto tie = static_cast<float>(midpoint);
      ASSERT_EQ(tie, midpoint);
      for (const int sign : {0, 0x8000}) {
        const float x = sign == 0 ? tie : -tie;
        ASSERT_EQ(format.encode(x), (bits + (bits & 1)) | sign) << bits;
        ASSERT_EQ(format.encode(std::nextafter(x, 0.0f)), bits | sign) << bits;
        ASSERT_EQ(format.encode(std::nextafter(x, sign == 0 ? HUGE_VALF : -HUGE_VALF)),
                  (bits + 1) | sign)
            << bits;
      }
    }
  }
}

TEST(Float16Test, EveryNanIsCanonical) {
  for (const Format& format : kFormats) {
    for (const uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u, 0x7FFFFFFFu}) {
      EXPECT_EQ(format.encode(std::bit_cast<float>(nan)), format.nan);
    }
  }
}

TEST(Float16Test, OverflowGivesInfinity) {
  EXPECT_EQ(EncodeFp16(65519.996f), 0x7BFF);
  EXPECT_EQ(EncodeFp16(65520.0f), 0x7C00);
  EXPECT_EQ(EncodeFp16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(EncodeBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(EncodeFp16(-HUGE_VALF), 0xFC00);
  EXPECT_EQ(EncodeBf16(-HUGE_VALF), 0xFF80);
  EXPECT_EQ(DecodeFp16(0x7BFF), kFp16Max);
  EXPECT_EQ(DecodeBf16(0x7F7F), kBf16Max);
}

TEST(Float16Test, Fp16UnderflowKeepsTheSign) {
  EXPECT_EQ(EncodeFp16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(EncodeFp16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(EncodeFp16(0x1p-25f), 0);
  EXPECT_EQ(EncodeFp16(std::nextafter(0x1p-25f, 1.0f)), 1);
}

static_assert(EncodeFp16(1.0f) == 0x3C00 && DecodeBf16(0x3F80) == 1.0f);

}  // namespace
}  // namespace tetrad
