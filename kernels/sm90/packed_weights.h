// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Packed weights: the form in which the Hopper kernel keeps NVFP4 weights, made
// once when they are sealed. Same number of bits, reversible, exact.
//
// The matrix [n, k] is cut into blocks of 128 rows x 64 k, padded with zeros;
// block (i, j) is number i * ceil(k / 64) + j, so a strip of 128 rows is one run
// of memory. A block holds what one K step of the kernel reads:
//
//   byte   0                                    4096                        4608
//          | codes: slab 0 .. 7, 512 bytes each | scales: slab 0 .. 7, 64 each |
//
// A slab is the 16 rows of one warp's wgmma fragment. Its lane l = 4 g + q takes
// 16 bytes of codes: words 0, 1 are fragment row g, words 2, 3 fragment row g + 8;
// of each the first word is of wgmma steps 0 and 1 (k 0..31), the second of 2 and
// 3. The word's eight codes are k = 16 s + {2q, 2q+1, 2q+8, 2q+9} of its two steps
// s. They are stored so that four shift-and-mask operations give the four register
// halves of the fragment (UnpackWord): the inverse of a 32 x 32 matrix over GF(2).
// Three more give those of BF16, whose magnitudes lie three places lower under the same
// sign (UnpackBf16).
//
// Fragment row r is row FragmentRow(r) of the slab: so a lane that got its
// accumulators transposed owns four neighbouring columns of C.
//
// Scales: 8 bytes for each g: a word for fragment row g, one for g + 8, of the
// four blocks of 16 k. Each scale s is UE5M3, the bits 7..14 of the FP16 number
// s * 2^7, which all legal scales fill without a rest (EncodeScale). Its place in
// the word lets a mask, and a rotation and a mask, give two pairs of FP16 numbers.
#pragma once

#include <cstdint>

#include "kernels/nvfp4.h"

namespace tetrad::sm90 {

inline constexpr int32_t kBlockRows = 128;
inline constexpr int32_t kBlockK = 64;
inline constexpr int32_t kSlabRows = 16;
inline constexpr int32_t kSlabs = kBlockRows / kSlabRows;
inline constexpr int32_t kSlabCodeBytes = kSlabRows * kBlockK / 2;
inline constexpr int32_t kSlabScaleBytes = kSlabRows * kBlockK / kScaleBlock;
inline constexpr int32_t kBlockCodeBytes = kSlabs * kSlabCodeBytes;
inline constexpr int32_t kBlockBytes = kBlockCodeBytes + kSlabs * kSlabScaleBytes;
static_assert(kBlockCodeBytes == 4096 && kBlockBytes == 4608);

constexpr int64_t PackedBlocks(int64_t n, int64_t k) {
  return CeilDiv(n, kBlockRows) * CeilDiv(k, kBlockK);
}
constexpr int64_t PackedBytes(int64_t n, int64_t k) { return PackedBlocks(n, k) * kBlockBytes; }

// Row of the slab that is row `r` of the fragment.
TETRAD_HOST_DEVICE constexpr int32_t FragmentRow(int32_t r) {
  return r < 8 ? 4 * (r / 2) + r % 2 : 4 * ((r - 8) / 2) + 2 + r % 2;
}

// The fragment row that row `row` of the slab is.
TETRAD_HOST_DEVICE constexpr int32_t FragmentRowOf(int32_t row) {
  return row % 4 / 2 * 8 + row / 4 * 2 + row % 2;
}

// Where the sign and the three bits of magnitude of two codes lie in an FP16 pair
// that is 2^-14 times their values.
inline constexpr uint32_t kCodeMask = 0x8E008E00;

struct FragmentPairs {
  uint32_t pairs[4];  // step 0: k 2q.., k 2q+8..; step 1: the same; low half: even k
};
TETRAD_HOST_DEVICE constexpr FragmentPairs UnpackWord(uint32_t word) {
  return {{(word << 6) & kCodeMask, (word << 9) & kCodeMask, (word ^ (word >> 3)) & kCodeMask,
           (word ^ (word << 2)) & kCodeMask}};
}

// Functions of bits that a device has one instruction for (Lop3 of expand_weights.cuh),
// which its compiler does not find.
struct PlainBits {
  // Of a where mask has ones, of b elsewhere.
  TETRAD_HOST_DEVICE static constexpr uint32_t Select(uint32_t a, uint32_t b, uint32_t mask) {
    return (a & mask) | (b & ~mask);
  }
  TETRAD_HOST_DEVICE static constexpr uint32_t MaskAndSet(uint32_t a, uint32_t mask, uint32_t set) {
    return (a & mask) | set;
  }
};

// The same in BF16, where a pair that is 2^-126 times its codes has the signs in the same
// place and the magnitudes three places lower: so by UnpackWord()'s shifts, not of the
// word but of what has magnitudes three places down and signs as they were. Pairs 2 and
// 3 have signs where 0 and 1 have magnitudes, hence a word of its own for each two.
inline constexpr uint32_t kBf16CodeMask = 0x81C081C0;
inline constexpr uint32_t kSignsOf01 = 0x02400240;  // magnitudes: bits 0..5
inline constexpr uint32_t kSignsOf23 = 0xA004A004;  // magnitudes: bits 7..14
struct Bf16Words {
  uint32_t of01;
  uint32_t of23;
};
template <class Bits = PlainBits>
TETRAD_HOST_DEVICE constexpr Bf16Words MagnitudesDown(uint32_t word) {
  const uint32_t down = word >> 3 | word << 29;
  return {Bits::Select(word, down, kSignsOf01), Bits::Select(word, down, kSignsOf23)};
}
TETRAD_HOST_DEVICE constexpr FragmentPairs UnpackBf16(const Bf16Words& words) {
  const auto [x, y] = words;
  return {{(x << 6) & kBf16CodeMask, (x << 9 | x >> 23) & kBf16CodeMask,
           (y ^ (y >> 3)) & kBf16CodeMask, (y ^ (y << 2)) & kBf16CodeMask}};
}

// The word that UnpackWord() makes `pairs` of (all within kCodeMask). The first two
// pairs lie in it as they are. In each half p2 and p3, as UnpackWord() names them,
// give bits 7, 8 and 10..15, once bits 9 and 15 are known; bit 15 of the lower half
// has bit 18 mixed in.
TETRAD_HOST_DEVICE constexpr uint32_t PackWord(const FragmentPairs& pairs) {
  const auto [p0, p1, p2, p3] = pairs.pairs;
  const uint32_t plain = p0 >> 6 | p1 >> 9;
  const uint32_t bits9 = plain >> 9 & 0x00010001;
  const uint32_t bits15 = (p2 ^ (plain >> 3 & 0x8000)) >> 15 & 0x00010001;
  constexpr uint32_t kWith9 = 1 << 7 | 1 << 11 | 1 << 12 | 1 << 14;
  constexpr uint32_t kWith15 = 1 << 8 | 1 << 10 | 1 << 13 | 1 << 15;
  return plain ^ bits9 * kWith9 ^ bits15 * kWith15 ^ (p2 & 0x04000400) ^ (p2 >> 2 & 0x01000100) ^
         (p2 << 3 & 0x50005000) ^ (p3 & 0x08000800) ^ (p3 << 3 & 0x40004000) ^
         (p3 >> 2 & 0x21802180) ^ (p3 >> 5 & 0x04000400) ^ (p3 >> 7 & 0x01000100);
}

// Two codes as the FP16 pair that UnpackWord() gives.
TETRAD_HOST_DEVICE constexpr uint32_t CodePair(uint32_t low, uint32_t high) {
  const uint32_t both = low | high << 16;
  return (both & 0x00080008) << 12 | (both & 0x00070007) << 9;
}
// The byte of the two codes, the first in its low nibble.
TETRAD_HOST_DEVICE constexpr uint32_t PairCodes(uint32_t pair) {
  const uint32_t both = (pair >> 12 & 0x00080008) | (pair >> 9 & 0x00070007);
  return (both | both >> 12) & 0xFF;
}

// UE4M3 (legal: neither negative nor NaN) to UE5M3 of 2^7 times its value.
TETRAD_HOST_DEVICE constexpr uint8_t EncodeScale(uint8_t scale) {
  if (scale >= 8) return static_cast<uint8_t>(scale + 120);
  if (scale >= 4) return static_cast<uint8_t>(15 << 3 | (scale - 4) << 1);
  if (scale >= 2) return static_cast<uint8_t>(14 << 3 | (scale - 2) << 2);
  return scale == 1 ? 13 << 3 : 0;
}
TETRAD_HOST_DEVICE constexpr uint8_t DecodeScale(uint8_t packed) {
  if (packed >= 16 << 3) return static_cast<uint8_t>(packed - 120);
  if (packed >= 15 << 3) return static_cast<uint8_t>(4 + ((packed & 7) >> 1));
  if (packed >= 14 << 3) return static_cast<uint8_t>(2 + ((packed & 7) >> 2));
  return packed == 0 ? 0 : 1;
}

// In bits 7..14 and 23..30 of UnpackScales(w) and of its rotation.
inline constexpr uint32_t kScaleMask = 0x7F807F80;
TETRAD_HOST_DEVICE constexpr uint32_t PackScales(uint32_t s0, uint32_t s1, uint32_t s2,
                                                 uint32_t s3) {
  const uint32_t rotated = s2 << 7 | s3 << 23;
  return s0 << 7 | s1 << 23 | rotated >> 8 | rotated << 24;
}
TETRAD_HOST_DEVICE constexpr uint32_t FirstScales(uint32_t word) { return word & kScaleMask; }
TETRAD_HOST_DEVICE constexpr uint32_t SecondScales(uint32_t word) {
  return (word << 8 | word >> 24) & kScaleMask;
}

// The same scales as BF16 pairs of 2^119 times their values, whose exponents are those of
// UE5M3 with three ones before: bits 4..11 under kBf16ScaleTop. That makes of a scale of
// zero kBf16ScaleTop, 2^97, which is to be subtracted: to any other it is less than a
// quarter of the last place, so their difference, rounded, is what was there.
inline constexpr uint32_t kBf16ScaleMask = kScaleMask >> 3;
inline constexpr uint32_t kBf16ScaleTop = 0x70007000;
template <class Bits = PlainBits>
TETRAD_HOST_DEVICE constexpr uint32_t FirstScalesAndTop(uint32_t word) {
  return Bits::MaskAndSet(word >> 3, kBf16ScaleMask, kBf16ScaleTop);
}
template <class Bits = PlainBits>
TETRAD_HOST_DEVICE constexpr uint32_t SecondScalesAndTop(uint32_t word) {
  return Bits::MaskAndSet(word << 5 | word >> 27, kBf16ScaleMask, kBf16ScaleTop);
}

}  // namespace tetrad::sm90
