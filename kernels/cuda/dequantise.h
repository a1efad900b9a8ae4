// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The integer half of expanding NVFP4 into FP16 or BF16: bit moves that give
// each code and each scale up to a power of two, two numbers in a 32-bit word.
// One multiplication by a power of two (kScaleFactor, kCodeFactor) and one of
// code by scale finish it, all exact. The same code on host and device; the
// host tests it over every code and every scale.
//
//   word of 8 codes   [c7 c6 c5 c4 c3 c2 c1 c0]          4 bits each
//   AlignedPair(i)    [c(2i+1) ............ | c(2i) ............]  a code atop each half
//   MovedPair(i)      [s...eem.. | s...eem..]            sign kept, magnitude moved down
#pragma once

#include <cstdint>

#include "kernels/nvfp4.h"

namespace tetrad::cuda {

// Moving the three magnitude bits of E2M1, and the seven bits of UE4M3, to where
// the format has its lowest exponent bits multiplies the value by a power of two:
// the difference of the exponent biases (1 and 7 against the format's).
struct Fp16Operand {
  static constexpr int kCodeShift = 3;  // from bits 12..14 to bits 9..11: value * 2^-14
  static constexpr uint32_t kCodeMask = 0x0E000E00;
  static constexpr int kScaleShift = 7;  // value * 2^-8
  // The scale is given times 2^7, the most that does not overflow, so that code
  // times scale is the value times 2^-7 and needs no multiplication more.
  static constexpr uint32_t kScaleFactor = 0x78007800;  // 2^15, twice
  static constexpr float kOperandScale = 0x1p-7f;
};

struct Bf16Operand {
  static constexpr int kCodeShift = 6;  // from bits 12..14 to bits 6..8: value * 2^-126
  static constexpr uint32_t kCodeMask = 0x01C001C0;
  static constexpr int kScaleShift = 4;                 // value * 2^-120
  static constexpr uint32_t kScaleFactor = 0x7B807B80;  // 2^120, twice
  // Products with BF16 subnormals fill FP32 down to its last bit: no power of
  // two may stay in the operand, so the code is brought to its value first.
  static constexpr uint32_t kCodeFactor = 0x7E807E80;  // 2^126, twice
  static constexpr float kOperandScale = 1;
};

// Four of the eight bytes of (x, y), x lowest, by the four nibbles of `selector`.
TETRAD_HOST_DEVICE inline uint32_t SelectBytes(uint32_t x, uint32_t y, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(x, y, selector);
#else
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xFF) << (8 * i);
  }
  return result;
#endif
}

// Codes 2 * pair (low half) and 2 * pair + 1 (high half) of a word of eight,
// as numbers of the format times 2^-14 (FP16) or 2^-126 (BF16).
template <class Operand>
TETRAD_HOST_DEVICE inline uint32_t MovedPair(uint32_t codes, uint32_t pair) {
  const uint32_t aligned = SelectBytes(codes << 4, codes, (4 + pair) << 12 | pair << 4);
  return (aligned & 0x80008000) | (aligned >> Operand::kCodeShift & Operand::kCodeMask);
}

// Two scale bytes (bits 0..15) as numbers of the format, to be multiplied by
// kScaleFactor; bit 7 of each is ignored.
template <class Operand>
TETRAD_HOST_DEVICE inline uint32_t MovedScales(uint32_t scales) {
  return (SelectBytes(scales, 0, 0x4140) & 0x007F007F) << Operand::kScaleShift;
}

// What must be OR-ed to the multiplied scales: all magnitude bits, a NaN, where
// the byte is 0x7F; nothing elsewhere.
TETRAD_HOST_DEVICE inline uint32_t NanScales(uint32_t scales) {
  const uint32_t magnitude = SelectBytes(scales, 0, 0x4140) & 0x007F007F;
  return ((magnitude + 0x00010001) >> 7 & 0x00010001) * 0x7FFF;
}

// One half of a word, twice.
TETRAD_HOST_DEVICE inline uint32_t BothHalves(uint32_t pair, int half) {
  return SelectBytes(pair, 0, half == 0 ? 0x1010 : 0x3232);
}

}  // namespace tetrad::cuda
