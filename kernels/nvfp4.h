// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// NVFP4: element codes, block scales and the two memory layouts of scales.
//
// A value is code * scale (* a global FP32 factor, which Tetrad calls alpha).
// Codes are E2M1: sign, 2 exponent bits, 1 mantissa bit; two per byte, the
// low nibble holds even k. Scales are UE4M3 (E4M3 without sign), one per 16
// codes along K. Everything here is constexpr, allocation-free, and the same
// on host and device.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define TETRAD_HOST_DEVICE __host__ __device__
#else
#define TETRAD_HOST_DEVICE
#endif

namespace tetrad {

inline constexpr int kScaleBlock = 16;           // codes along K that share one scale
inline constexpr float kE2m1Max = 6.0f;          // largest finite E2M1 magnitude
inline constexpr float kUe4m3Max = 448.0f;       // largest finite UE4M3 magnitude
inline constexpr uint8_t kUe4m3Nan = 0x7F;       // the only NaN once bit 7 is ignored
inline constexpr int64_t kScaleTileRows = 128;   // rows of one 512-byte tile of a blocked layout
inline constexpr int64_t kScaleTileBytes = 512;  // 128 rows x 4 scale blocks

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// The value of a 4-bit code; bits above the low four are ignored.
TETRAD_HOST_DEVICE constexpr float DecodeE2m1(uint8_t code) {
  const int exponent = (code >> 1) & 3;
  const int mantissa = code & 1;
  const float magnitude =
      exponent == 0 ? 0.5f * mantissa : static_cast<float>((2 + mantissa) << exponent) * 0.25f;
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// The value of a scale byte; bit 7 is ignored, 0x7F gives a quiet NaN.
TETRAD_HOST_DEVICE constexpr float DecodeUe4m3(uint8_t scale) {
  const uint32_t bits = scale & 0x7Fu;
  if (bits == kUe4m3Nan) return std::bit_cast<float>(0x7FFFFFFFu);
  const uint32_t exponent = bits >> 3;
  const uint32_t mantissa = bits & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
}

// The nearest code, ties to even, magnitudes above 6 (infinity included)
// saturate to 6. The sign of zero is kept. NaN has no code: +0 is returned,
// and callers that must refuse NaN test for it themselves.
constexpr uint8_t EncodeE2m1(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0;
  const uint8_t sign = (bits >> 31) != 0 ? 8 : 0;
  const float x = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  // Midpoints between neighbouring codes; a tie goes to the code with an even
  // mantissa bit, which is why the comparison alternates between > and >=.
  uint8_t code = 0;
  if (x > 0.25f) code = 1;
  if (x >= 0.75f) code = 2;
  if (x > 1.25f) code = 3;
  if (x >= 1.75f) code = 4;
  if (x > 2.5f) code = 5;
  if (x >= 3.5f) code = 6;
  if (x > 5.0f) code = 7;
  return sign | code;
}

// The nearest scale byte, ties to even; negative values and -0 give 0; values
// above 448 (infinity included) saturate to 448; NaN gives 0x7F.
constexpr uint8_t EncodeUe4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return kUe4m3Nan;
  if ((bits >> 31) != 0) return 0;
  if (value >= kUe4m3Max) return 0x7E;
  if (value < 0x1p-6f) {  // subnormal: a multiple of 2^-9, rounded by the FP32 adder
    const float shifted = value + 0x1p14f;  // ulp(2^14) in FP32 is 2^-9
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) -
                                std::bit_cast<uint32_t>(0x1p14f));
  }
  const uint32_t round = 0x7FFFFu + ((bits >> 20) & 1);
  return static_cast<uint8_t>(((bits + round) >> 20) - (120u << 3));
}

// One 4-bit code of a packed row; `k` counts codes.
constexpr uint8_t UnpackCode(const uint8_t* row, int64_t k) {
  return (k & 1) != 0 ? row[k / 2] >> 4 : row[k / 2] & 0xF;
}

// How scale bytes of a [rows, k/16] matrix are laid out in memory.
enum class ScaleLayout : uint8_t {
  kLinear = 0,   // row-major [rows, k/16], as checkpoints store them
  kBlocked = 1,  // 512-byte tiles of 128 rows x 4 blocks, as tensor cores read them
  // Sealed weights of a device that packs them: no plane of their own, codes and scales
  // are blocks of sm90/packed_weights.h.
  kPacked = 2,
};

// Byte offset of the scale of row `row`, block `block` (= k/16).
TETRAD_HOST_DEVICE constexpr int64_t LinearScaleOffset(int64_t row, int64_t block, int64_t k) {
  return row * (k / kScaleBlock) + block;
}
TETRAD_HOST_DEVICE constexpr int64_t BlockedScaleOffset(int64_t row, int64_t block, int64_t k) {
  const int64_t tiles_along_k = (k + 63) / 64;
  return (row / 128 * tiles_along_k + block / 4) * kScaleTileBytes + row % 32 * 16 +
         row % 128 / 32 * 4 + block % 4;
}
TETRAD_HOST_DEVICE constexpr int64_t ScaleOffset(ScaleLayout layout, int64_t row, int64_t block,
                                                 int64_t k) {
  return layout == ScaleLayout::kLinear ? LinearScaleOffset(row, block, k)
                                        : BlockedScaleOffset(row, block, k);
}

// Bytes of one plane of scales; blocked planes are padded to 128 rows and 4 blocks.
constexpr int64_t ScalePlaneBytes(ScaleLayout layout, int64_t rows, int64_t k) {
  if (layout == ScaleLayout::kPacked) return 0;
  return layout == ScaleLayout::kLinear
             ? rows * (k / kScaleBlock)
             : CeilDiv(rows, kScaleTileRows) * CeilDiv(k, 64) * kScaleTileBytes;
}

// Bytes of a packed [rows, k] code matrix.
constexpr int64_t CodeBytes(int64_t rows, int64_t k) { return rows * (k / 2); }

}  // namespace tetrad
