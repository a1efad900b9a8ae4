// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/dequantise.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/float16.h"

namespace tetrad::cuda {
namespace {

struct Fp16 {
  using Operand = Fp16Operand;
  static float Decode(uint32_t bits) { return DecodeFp16(static_cast<uint16_t>(bits)); }
  static uint16_t Encode(float value) { return EncodeFp16(value); }
};
struct Bf16 {
  using Operand = Bf16Operand;
  static float Decode(uint32_t bits) { return DecodeBf16(static_cast<uint16_t>(bits)); }
  static uint16_t Encode(float value) { return EncodeBf16(value); }
};

// What multiplying two numbers of the format gives, exactly or not at all.
template <class Format>
float ExactProduct(float x, float y) {
  const float product = x * y;
  if (!std::isnan(product)) {
    EXPECT_EQ(Format::Decode(Format::Encode(product)), product) << x << " " << y;
  }
  return product;
}

float CodeValue(Fp16Operand, float moved) { return moved; }
float CodeValue(Bf16Operand, float moved) {
  return ExactProduct<Bf16>(moved, Bf16::Decode(Bf16Operand::kCodeFactor & 0xFFFF));
}

template <class Format>
class DequantiseTest : public testing::Test {};
using Formats = testing::Types<Fp16, Bf16>;
TYPED_TEST_SUITE(DequantiseTest, Formats);

// Every code with every scale, as the kernel multiplies them, at every place.
TYPED_TEST(DequantiseTest, EveryCodeTimesEveryScaleIsExact) {
  using Operand = typename TypeParam::Operand;
  for (uint32_t scale = 0; scale < 256; ++scale) {
    for (int half = 0; half < 2; ++half) {
      const uint32_t scales = half == 0 ? scale | 0x7F00 : scale << 8 | 0x7F;
      const auto part = [&](uint32_t pair) { return pair >> (16 * half) & 0xFFFF; };
      const float factor = TypeParam::Decode(Operand::kScaleFactor & 0xFFFF);
      const float multiplied =
          ExactProduct<TypeParam>(TypeParam::Decode(part(MovedScales<Operand>(scales))), factor);
      const uint32_t bits = TypeParam::Encode(multiplied) | part(NanScales(scales));
      const float scale_value = TypeParam::Decode(bits);
      for (uint32_t code = 0; code < 16; ++code) {
        for (uint32_t at = 0; at < 8; ++at) {
          const uint32_t word = (0xA5C3961Fu & ~(15u << (4 * at))) | code << (4 * at);
          const uint32_t moved = MovedPair<Operand>(word, at / 2) >> (at % 2 * 16) & 0xFFFF;
          const float value =
              ExactProduct<TypeParam>(CodeValue(Operand{}, TypeParam::Decode(moved)), scale_value);
          const float expected = DecodeE2m1(static_cast<uint8_t>(code)) *
                                 DecodeUe4m3(static_cast<uint8_t>(scale)) * Operand::kOperandScale;
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(value)) << code << " " << scale;
          } else {
            ASSERT_EQ(value, expected) << code << " " << scale;
            ASSERT_EQ(std::signbit(value), std::signbit(expected)) << code << " " << scale;
          }
        }
      }
    }
  }
}

TEST(DequantiseBitsTest, BothHalvesTakesOne) {
  EXPECT_EQ(BothHalves(0x12345678, 0), 0x56785678u);
  EXPECT_EQ(BothHalves(0x12345678, 1), 0x12341234u);
}

}  // namespace
}  // namespace tetrad::cuda
