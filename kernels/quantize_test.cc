// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  absl::Status status;

  int code(int64_t k) const { return UnpackCode(codes.data(), k); }
};

Quantized QuantizeNow(const FloatMatrix& x, float global_scale = 1,
                      std::span<const float> row_scale = {},
                      ScaleLayout layout = ScaleLayout::kLinear) {
  Quantized q;
  const int64_t k = std::max<int64_t>(x.k, 0);
  q.codes.assign(static_cast<size_t>(CodeBytes(x.rows, k)), 0xAA);
  q.scales.assign(static_cast<size_t>(ScalePlaneBytes(layout, x.rows, k)), 0xAA);
  q.status = Quantize(x, global_scale, row_scale, {q.codes.data(), q.scales.data(), layout});
  return q;
}

// One row of 32 values: the given ones, then zeros.
std::vector<float> Row(std::vector<float> values) {
  values.resize(32);
  return values;
}
FloatMatrix View(const std::vector<float>& row) {
  return {.data = row.data(),
          .rows = 1,
          .k = static_cast<int64_t>(row.size()),
          .row_stride = static_cast<int64_t>(row.size())};
}

TEST(QuantizeTest, ZerosGiveZeroCodesAndScales) {
  const std::vector<float> row = Row({0.0f, -0.0f});
  const Quantized q = QuantizeNow(View(row));
  ASSERT_TRUE(q.status.ok());
  EXPECT_THAT(q.codes, testing::Each(0));
  EXPECT_THAT(q.scales, testing::Each(0));
}

TEST(QuantizeTest, NegativeZeroKeepsItsSignInALiveBlock) {
  const std::vector<float> row = Row({6.0f, -0.0f, -0.1f});
  const Quantized q = QuantizeNow(View(row));
  ASSERT_TRUE(q.status.ok());
  EXPECT_EQ(q.scales[0], 0x38);
  EXPECT_EQ(q.code(0), 7);
  EXPECT_EQ(q.code(1), 8);
  EXPECT_EQ(q.code(2), 8) << "rounds to -0";
}

TEST(QuantizeTest, ValuesBelowTheLeastScaleVanish) {
  const std::vector<float> row = Row({1e-38f, -1e-38f});
  const Quantized q = QuantizeNow(View(row));
  ASSERT_TRUE(q.status.ok());
  EXPECT_THAT(q.codes, testing::Each(0));
  EXPECT_THAT(q.scales, testing::Each(0));
}

TEST(QuantizeTest, HugeValuesSaturate) {
  for (const float huge : {2.4e9f, 3.4e38f}) {
    const std::vector<float> row = Row({huge, -huge, 1.0f});
    const Quantized q = QuantizeNow(View(row));
    ASSERT_TRUE(q.status.ok()) << q.status;
    EXPECT_EQ(q.scales[0], 0x7E);
    EXPECT_EQ(q.code(0), 7);
    EXPECT_EQ(q.code(1), 15);
    EXPECT_EQ(q.code(2), 0);
  }
}

TEST(QuantizeTest, TiesGoToTheEvenCodeAndNeighboursToTheNearest) {
  constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  constexpr int kAt[] = {0, 2, 2, 4, 4, 6, 6};
  constexpr int kBelow[] = {0, 1, 2, 3, 4, 5, 6};
  // The unit is scale * global: powers of two, and one with every bit in use.
  for (const float global : {1.0f, 0x1p-100f, 0x1.234567p3f, 0x1.FFFFFEp-2f, 0x1.8p100f}) {
    for (const float scale : {0x1p-9f, 0.875f, 1.0f, 448.0f}) {
      const double unit = static_cast<double>(scale) * global;
      for (int i = 0; i < 7; ++i) {
        // The nearest FP32 values around the real tie; equal to it if it has one.
        const double tie = kTies[i] * unit;
        auto below = static_cast<float>(tie);
        while (below >= tie) below = std::nextafter(below, 0.0f);
        const float above = std::nextafter(below, kInfinity);
        std::vector<float> row = Row({static_cast<float>(6 * unit), below, above, -below});
        if (above == tie) row[4] = std::nextafter(above, kInfinity);
        const Quantized q = QuantizeNow(View(row), global);
        ASSERT_TRUE(q.status.ok()) << q.status;
        ASSERT_EQ(q.scales[0], EncodeUe4m3(scale));
        EXPECT_EQ(q.code(1), kBelow[i]) << tie;
        EXPECT_EQ(q.code(2), above == tie ? kAt[i] : kBelow[i] + 1) << tie;
        EXPECT_EQ(q.code(3), kBelow[i] | 8) << tie;
        if (above == tie) {
          EXPECT_EQ(q.code(4), kBelow[i] + 1) << tie;
        }
      }
    }
  }
}

TEST(QuantizeTest, ScalesRoundToNearestEvenAndSaturate) {
  constexpr std::pair<float, int> kCases[] = {{448, 0x7E},     {464, 0x7E},     {465, 0x7E},
                                              {1000, 0x7E},    {432, 0x7E},     {431.99f, 0x7D},
                                              {1.0625f, 0x38}, {1.1875f, 0x3A}, {0x1p-10f, 0},
                                              {0x1.8p-9f, 2},  {0x1.01p-10f, 1}};
  for (const auto& [ideal, byte] : kCases) {
    for (const float global : {1.0f, 0x1p40f}) {
      const std::vector<float> row = Row({6 * ideal * global});
      const Quantized q = QuantizeNow(View(row), global);
      ASSERT_TRUE(q.status.ok());
      EXPECT_EQ(q.scales[0], byte) << ideal;
    }
  }
}

TEST(QuantizeTest, NotFiniteValuesAreRefusedByRowAndColumn) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    std::vector<float> data(3 * 64, 1.0f);
    data[2 * 64 + 37] = bad;
    const FloatMatrix x{.data = data.data(), .rows = 3, .k = 64, .row_stride = 64};
    const Quantized q = QuantizeNow(x);
    EXPECT_EQ(q.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(q.status.message()), HasSubstr("row 2 column 37: "));
    std::vector<float> scales(3);
    EXPECT_THAT(std::string(RowScales(x, scales).message()), HasSubstr("row 2 column 37: "));
  }
}

TEST(QuantizeTest, BadGlobalScalesAreRefused) {
  const std::vector<float> row = Row({1.0f});
  for (const float bad : {0.0f, -0.0f, -1.0f, kInfinity, -kInfinity, kNan, 1e-40f, 1.4e-45f}) {
    const Quantized q = QuantizeNow(View(row), bad);
    EXPECT_EQ(q.status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(q.status.message()), HasSubstr("global_scale="));
  }
  EXPECT_FALSE(QuantizeNow(View(row), 1e38f).status.ok()) << "6 * scale overflows";
}

TEST(QuantizeTest, BadRowScalesAreRefusedByRow) {
  std::vector<float> data(2 * 32, 1.0f);
  const FloatMatrix x{.data = data.data(), .rows = 2, .k = 32, .row_stride = 32};
  for (const float bad : {0.0f, -1.0f, kInfinity, kNan, 1e-40f}) {
    const float scales[] = {1.0f, bad};
    EXPECT_THAT(std::string(QuantizeNow(x, 1, scales).status.message()),
                HasSubstr("row 1 column 0: "));
  }
  const float scales[] = {1.0f, 1e-30f};
  EXPECT_FALSE(QuantizeNow(x, 1e-30f, scales).status.ok()) << "the product is subnormal";
  const float one[] = {1.0f};
  EXPECT_THAT(std::string(QuantizeNow(x, 1, one).status.message()),
              HasSubstr("1 values for 2 rows"));
}

TEST(QuantizeTest, OverflowingDivisionIsRefused) {
  const std::vector<float> row = Row({0, 0, 0, 3e38f});
  const Quantized q = QuantizeNow(View(row), 1.2e-38f);
  EXPECT_EQ(q.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(q.status.message()), HasSubstr("row 0 column 3: "));
}

TEST(QuantizeTest, KMustBeAMultipleOf32) {
  std::vector<float> data(128);
  for (const int64_t k : {-32, 0, 16, 100}) {
    const FloatMatrix x{.data = data.data(), .rows = 1, .k = k, .row_stride = 128};
    EXPECT_THAT(std::string(QuantizeNow(x).status.message()),
                HasSubstr("k=" + std::to_string(k) + " must be a positive multiple of 32"));
  }
}

// Every kind of view of one buffer gives what its contiguous copy gives.
TEST(QuantizeTest, StridesAreHonoured) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kK = 32;
  Random random(7);
  std::vector<float> data(40 * 100);
  for (float& value : data) value = random.Normal();
  const FloatMatrix views[] = {
      {.data = data.data() + 5, .rows = kRows, .k = kK, .row_stride = 100},
      {.data = data.data(), .rows = kRows, .k = kK, .row_stride = 200},
      {.data = data.data() + 39 * 100, .rows = kRows, .k = kK, .row_stride = -100},
      {.data = data.data(), .rows = kRows, .k = kK, .row_stride = 0},
      {.data = data.data(), .rows = kRows, .k = kK, .row_stride = 1, .column_stride = 100},
      {.data = data.data() + 99, .rows = kRows, .k = kK, .row_stride = 100, .column_stride = -2},
  };
  for (const FloatMatrix& view : views) {
    std::vector<float> copy;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < kK; ++k) {
        copy.push_back(
            static_cast<const float*>(view.data)[row * view.row_stride + k * view.column_stride]);
      }
    }
    const Quantized expected =
        QuantizeNow({.data = copy.data(), .rows = kRows, .k = kK, .row_stride = kK});
    const Quantized actual = QuantizeNow(view);
    ASSERT_TRUE(actual.status.ok());
    EXPECT_EQ(actual.codes, expected.codes);
    EXPECT_EQ(actual.scales, expected.scales);
  }
}

TEST(QuantizeTest, SixteenBitInputsGiveWhatTheirFp32ValuesGive) {
  Random random(8);
  std::vector<uint16_t> bits(64);
  std::vector<float> values(64);
  for (const auto type : {FloatType::kFp16, FloatType::kBf16}) {
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] =
          type == FloatType::kFp16 ? EncodeFp16(random.Normal()) : EncodeBf16(random.Normal());
      values[i] = type == FloatType::kFp16 ? DecodeFp16(bits[i]) : DecodeBf16(bits[i]);
    }
    const Quantized expected =
        QuantizeNow({.data = values.data(), .rows = 2, .k = 32, .row_stride = 32});
    const Quantized actual =
        QuantizeNow({.data = bits.data(), .type = type, .rows = 2, .k = 32, .row_stride = 32});
    ASSERT_TRUE(actual.status.ok());
    EXPECT_EQ(actual.codes, expected.codes);
    EXPECT_EQ(actual.scales, expected.scales);
  }
}

TEST(QuantizeTest, BlockedScalesEqualLinearOnesAndPaddingIsZero) {
  constexpr int64_t kRows = 130;
  constexpr int64_t kK = 96;
  Random random(9);
  std::vector<float> data(kRows * kK);
  for (float& value : data) value = random.Normal();
  const FloatMatrix x{.data = data.data(), .rows = kRows, .k = kK, .row_stride = kK};
  const Quantized linear = QuantizeNow(x);
  const Quantized blocked = QuantizeNow(x, 1, {}, ScaleLayout::kBlocked);
  EXPECT_EQ(linear.codes, blocked.codes);
  std::vector<uint8_t> expected(blocked.scales.size());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t block = 0; block < kK / kScaleBlock; ++block) {
      expected[BlockedScaleOffset(row, block, kK)] =
          linear.scales[LinearScaleOffset(row, block, kK)];
    }
  }
  EXPECT_EQ(blocked.scales, expected);
}

// Codes and scales against the definition in long double.
TEST(QuantizeTest, FollowsItsFormula) {
  Random random(10);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> row(32);
    const int exponent = random.Between(-30, 30);
    for (float& value : row) value = std::ldexp(random.Normal(), exponent);
    const float global = std::ldexp(random.Significand(), exponent - random.Between(-3, 6));
    const float row_scale[] = {std::ldexp(random.Significand(), random.Between(-4, 4))};
    const Quantized q = QuantizeNow(View(row), global, row_scale);
    ASSERT_TRUE(q.status.ok());
    const float factor = global * row_scale[0];
    for (int block = 0; block < 2; ++block) {
      float amax = 0;
      for (int k = 0; k < 16; ++k) amax = std::max(amax, std::fabs(row[block * 16 + k]));
      ASSERT_EQ(q.scales[block], EncodeUe4m3(amax / (6.0f * factor)));
      const long double unit = static_cast<long double>(DecodeUe4m3(q.scales[block])) * factor;
      if (unit == 0) continue;
      for (int k = block * 16; k < block * 16 + 16; ++k) {
        const long double chosen = std::fabs(DecodeE2m1(static_cast<uint8_t>(q.code(k)))) * unit;
        const long double x = std::fabs(row[k]);
        for (uint8_t other = 0; other < 8; ++other) {
          ASSERT_LE(std::fabs(x - chosen), std::fabs(x - DecodeE2m1(other) * unit)) << row[k];
        }
        ASSERT_EQ(q.code(k) >= 8, std::signbit(row[k]));
      }
    }
  }
}

TEST(QuantizeTest, RowScalesFillTheRange) {
  std::vector<float> data(4 * 32);
  data[3] = -2688;
  data[32 + 31] = 1e-30f;
  data[64] = 1e-41f;
  std::vector<float> scales(4);
  const FloatMatrix x{.data = data.data(), .rows = 4, .k = 32, .row_stride = 32};
  ASSERT_TRUE(RowScales(x, scales).ok());
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 1e-30f / 2688.0f);
  EXPECT_EQ(scales[2], std::numeric_limits<float>::min());
  EXPECT_EQ(scales[3], 1.0f) << "a row of zeros";
  const Quantized q = QuantizeNow(x, 1, scales);
  ASSERT_TRUE(q.status.ok()) << q.status;
  EXPECT_EQ(q.scales[0], 0x7E);
  EXPECT_EQ(q.scales[3], 0x7E);
}

TEST(DequantizeTest, InvertsQuantisedValuesAndHonoursTheStride) {
  for (const auto layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    std::vector<float> data(2 * 32);
    for (int i = 0; i < 64; ++i) data[i] = DecodeE2m1(static_cast<uint8_t>(i & 15)) * 0.375f;
    const FloatMatrix x{.data = data.data(), .rows = 2, .k = 32, .row_stride = 32};
    const float row_scale[] = {0.125f, 0.25f};
    const Quantized q = QuantizeNow(x, 4, row_scale, layout);
    ASSERT_TRUE(q.status.ok());
    std::vector<float> out(2 * 40, -1);
    Dequantize(q.codes.data(), q.scales.data(), layout, 2, 32, 4, row_scale, out.data(), 40);
    for (int row = 0; row < 2; ++row) {
      for (int k = 0; k < 32; ++k) EXPECT_EQ(out[row * 40 + k], data[row * 32 + k]);
      for (int k = 32; k < 40; ++k) EXPECT_EQ(out[row * 40 + k], -1);
    }
  }
}

TEST(DequantizeTest, NanScaleGivesNan) {
  const uint8_t codes[16] = {};
  const uint8_t scales[2] = {0x38, 0x7F};
  float out[32];
  Dequantize(codes, scales, ScaleLayout::kLinear, 1, 32, 1, {}, out, 32);
  for (int k = 0; k < 32; ++k) EXPECT_EQ(std::isnan(out[k]), k >= 16);
}

}  // namespace
}  // namespace tetrad
