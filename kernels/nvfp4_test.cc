// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/nvfp4.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();

// The formats written down a second time, from their definition.
constexpr double kE2m1Magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double Ue4m3ByDefinition(int bits) {
  const int exponent = bits >> 3;
  const double mantissa = (bits & 7) / 8.0;
  return exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1 + mantissa, exponent - 7);
}

// The nearest entry of an ascending table; a tie goes to the even index.
template <class ValueAt>
int NearestIndex(double x, int count, const ValueAt& value_at) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    const double previous = std::fabs(x - value_at(best));
    const double distance = std::fabs(x - value_at(i));
    if (distance < previous || (distance == previous && i % 2 == 0)) best = i;
  }
  return best;
}

int NearestE2m1(float x) {
  return NearestIndex(std::min<double>(std::fabs(x), 1e9), 8,
                      [](int i) { return kE2m1Magnitudes[i]; });
}
int NearestUe4m3(float x) { return NearestIndex(std::min<double>(x, 1e9), 127, Ue4m3ByDefinition); }

// A value and its neighbours one and two units in the last place away.
std::vector<float> Around(float x) {
  const float up = std::nextafter(x, kInfinity);
  const float down = std::nextafter(x, -kInfinity);
  return {std::nextafter(down, -kInfinity), down, x, up, std::nextafter(up, kInfinity)};
}

TEST(E2m1Test, EveryCodeHasItsValue) {
  for (int byte = 0; byte < 256; ++byte) {
    const double magnitude = kE2m1Magnitudes[byte & 7];
    const float value = DecodeE2m1(static_cast<uint8_t>(byte));
    EXPECT_EQ(value, (byte & 8) != 0 ? -magnitude : magnitude) << byte;
    EXPECT_EQ(std::signbit(value), (byte & 8) != 0) << byte;
  }
}

TEST(E2m1Test, EveryCodeSurvivesDecodingAndEncoding) {
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(EncodeE2m1(DecodeE2m1(code)), code);
}

TEST(E2m1Test, EncodesTheNearestCodeAroundEveryValueAndMidpoint) {
  for (int i = 0; i < 8; ++i) {
    const double next = i < 7 ? kE2m1Magnitudes[i + 1] : 8;
    for (const double centre : {kE2m1Magnitudes[i], (kE2m1Magnitudes[i] + next) / 2}) {
      for (const float x : Around(static_cast<float>(centre))) {
        const int sign = std::signbit(x) ? 8 : 0;
        EXPECT_EQ(EncodeE2m1(x), NearestE2m1(x) | sign) << x;
        EXPECT_EQ(EncodeE2m1(-x), NearestE2m1(x) | (sign ^ 8)) << -x;
      }
    }
  }
}

TEST(E2m1Test, TiesGoToTheEvenMantissa) {
  constexpr std::pair<float, int> kTies[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                             {2.5f, 4},  {3.5f, 6},  {5.0f, 6}};
  for (const auto& [x, code] : kTies) {
    EXPECT_EQ(EncodeE2m1(x), code) << x;
    EXPECT_EQ(EncodeE2m1(-x), code | 8) << x;
  }
}

TEST(E2m1Test, EncodesTheNearestCodeOnASweep) {
  // Every float of 12 significant bits from 2^-4 to 2^4, and far outside.
  for (uint32_t bits = 0x3D800000; bits < 0x41800000; bits += 1 << 12) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(EncodeE2m1(x), NearestE2m1(x)) << x;
    ASSERT_EQ(EncodeE2m1(-x), NearestE2m1(x) | 8) << x;
  }
}

TEST(E2m1Test, SpecialValues) {
  EXPECT_EQ(EncodeE2m1(0.0f), 0);
  EXPECT_EQ(EncodeE2m1(-0.0f), 8);
  EXPECT_EQ(EncodeE2m1(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(EncodeE2m1(-std::numeric_limits<float>::denorm_min()), 8);
  EXPECT_EQ(EncodeE2m1(2.4e9f), 7);
  EXPECT_EQ(EncodeE2m1(-3.4e38f), 15);
  EXPECT_EQ(EncodeE2m1(kInfinity), 7);
  EXPECT_EQ(EncodeE2m1(-kInfinity), 15);
  EXPECT_EQ(EncodeE2m1(kQuietNan), 0);
  EXPECT_EQ(EncodeE2m1(-kQuietNan), 0);
  EXPECT_EQ(EncodeE2m1(std::bit_cast<float>(0x7F800001u)), 0);
}

TEST(Ue4m3Test, EveryByteHasItsValueWhateverBit7) {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = DecodeUe4m3(static_cast<uint8_t>(byte));
    if ((byte & 0x7F) == kUe4m3Nan) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, Ue4m3ByDefinition(byte & 0x7F)) << byte;
    }
  }
}

TEST(Ue4m3Test, EveryByteSurvivesDecodingAndEncoding) {
  for (int byte = 0; byte < 128; ++byte) {
    EXPECT_EQ(EncodeUe4m3(DecodeUe4m3(static_cast<uint8_t>(byte))), byte);
  }
}

TEST(Ue4m3Test, EncodesTheNearestByteAroundEveryValueAndMidpoint) {
  for (int i = 0; i < 127; ++i) {
    const double value = Ue4m3ByDefinition(i);
    const double next = i < 126 ? Ue4m3ByDefinition(i + 1) : 480;
    for (const double centre : {value, (value + next) / 2}) {
      for (const float x : Around(static_cast<float>(centre))) {
        EXPECT_EQ(EncodeUe4m3(x), x <= 0 ? 0 : NearestUe4m3(x)) << x;
      }
    }
  }
}

TEST(Ue4m3Test, EncodesTheNearestByteOnASweep) {
  for (uint32_t bits = 0x3A000000; bits < 0x44000000; bits += 1 << 14) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(EncodeUe4m3(x), NearestUe4m3(x)) << x;
  }
}

TEST(Ue4m3Test, SpecialValues) {
  EXPECT_EQ(EncodeUe4m3(0.0f), 0);
  EXPECT_EQ(EncodeUe4m3(-0.0f), 0);
  EXPECT_EQ(EncodeUe4m3(-1.0f), 0);
  EXPECT_EQ(EncodeUe4m3(-kInfinity), 0);
  EXPECT_EQ(EncodeUe4m3(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(EncodeUe4m3(0x1p-10f), 0) << "half the least subnormal, tie to even";
  EXPECT_EQ(EncodeUe4m3(0x1.8p-9f), 2) << "tie between 1 and 2";
  for (const float x : {448.0f, 464.0f, 465.0f, 1000.0f, 3.4e38f, kInfinity}) {
    EXPECT_EQ(EncodeUe4m3(x), 0x7E) << x;
  }
  EXPECT_EQ(EncodeUe4m3(kQuietNan), kUe4m3Nan);
  EXPECT_EQ(EncodeUe4m3(-kQuietNan), kUe4m3Nan);
}

TEST(CodesTest, LowNibbleIsEvenK) {
  constexpr uint8_t kRow[] = {0x21, 0x43, 0xFE};
  constexpr int kExpected[] = {1, 2, 3, 4, 14, 15};
  for (int k = 0; k < 6; ++k) EXPECT_EQ(UnpackCode(kRow, k), kExpected[k]);
  EXPECT_EQ(CodeBytes(3, 96), 144);
}

TEST(ScaleLayoutTest, KnownOffsets) {
  // Row r, block j at ((r/128) ceil(K/64) + j/4) 512 + (r%32) 16 + ((r%128)/32) 4 + j%4.
  struct Case {
    int64_t row, block, k, linear, blocked;
  };
  constexpr Case kCases[] = {
      {0, 0, 64, 0, 0},          {0, 3, 64, 3, 3},        {1, 0, 64, 4, 16},
      {31, 3, 64, 127, 499},     {32, 0, 64, 128, 4},     {96, 0, 64, 384, 12},
      {127, 3, 64, 511, 511},    {128, 0, 64, 512, 512},  {0, 4, 128, 4, 512},
      {5, 5, 96, 35, 593},       {128, 0, 96, 768, 1024}, {200, 447, 7168, 90047, 114315},
      {129, 6, 160, 1296, 2066},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(LinearScaleOffset(c.row, c.block, c.k), c.linear) << c.row << "," << c.block;
    EXPECT_EQ(BlockedScaleOffset(c.row, c.block, c.k), c.blocked) << c.row << "," << c.block;
    EXPECT_EQ(ScaleOffset(ScaleLayout::kLinear, c.row, c.block, c.k), c.linear);
    EXPECT_EQ(ScaleOffset(ScaleLayout::kBlocked, c.row, c.block, c.k), c.blocked);
  }
}

TEST(ScaleLayoutTest, OffsetsAreDistinctAndInsideThePlane) {
  for (const auto layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    for (const int64_t rows : {1, 5, 32, 127, 128, 129, 300}) {
      for (const int64_t k : {32, 64, 96, 160, 256}) {
        const int64_t bytes = ScalePlaneBytes(layout, rows, k);
        std::set<int64_t> seen;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t block = 0; block < k / kScaleBlock; ++block) {
            const int64_t offset = ScaleOffset(layout, row, block, k);
            EXPECT_GE(offset, 0);
            EXPECT_LT(offset, bytes);
            EXPECT_TRUE(seen.insert(offset).second);
          }
        }
        if (layout == ScaleLayout::kLinear) {
          EXPECT_EQ(static_cast<int64_t>(seen.size()), bytes);
        } else {
          EXPECT_EQ(bytes, RoundUp(rows, 128) * RoundUp(k, 64) / kScaleBlock);
        }
      }
    }
  }
}

TEST(ScaleLayoutTest, EmptyPlaneHasNoBytes) {
  EXPECT_EQ(ScalePlaneBytes(ScaleLayout::kLinear, 0, 64), 0);
  EXPECT_EQ(ScalePlaneBytes(ScaleLayout::kBlocked, 0, 64), 0);
}

static_assert(DecodeE2m1(0xF) == -6.0f && EncodeE2m1(5.0f) == 6 && EncodeUe4m3(448.0f) == 0x7E &&
              DecodeUe4m3(1) == 0x1p-9f);

}  // namespace
}  // namespace tetrad
