// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FP16 and BF16 as bit patterns, converted to and from FP32.
//
// Encoding rounds to nearest, ties to even; what exceeds the largest finite
// value by half a unit or more becomes infinity; subnormals are exact; every
// NaN becomes the one canonical NaN of its type. Decoding is exact. The same
// bits on every platform: integer arithmetic only, constexpr throughout.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/problem.h"

namespace tetrad {

inline constexpr float kFp16Max = 65504.0f;
inline constexpr float kBf16Max = 0x1.FEp127f;

constexpr bool IsNanBits(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu) > 0x7F800000u;
}

constexpr float DecodeBf16(uint16_t bits) {
  const float value = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return IsNanBits(value) ? std::bit_cast<float>(kCanonicalNanFp32) : value;
}

constexpr uint16_t EncodeBf16(float value) {
  if (IsNanBits(value)) return kCanonicalNanBf16;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

constexpr float DecodeFp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(mantissa != 0 ? kCanonicalNanFp32 : sign | 0x7F800000u);
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr uint16_t EncodeFp16(float value) {
  if (IsNanBits(value)) return kCanonicalNanFp16;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x47800000u) return sign | 0x7C00;  // 2^16 and above, infinity included
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded by the FP32 adder
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;  // ulp(0.5) in FP32 is 2^-24
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3F000000u);
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

}  // namespace tetrad
