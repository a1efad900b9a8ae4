// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From the packed weights of one K step to the fragments of its four wgmma, in
// registers: FP16 or BF16 numbers that are exactly code * scale times a power of two,
// which StoreTile() takes back.
//
// FP16: a code moves to bits 9..11 (2^-14 times its value), a scale to bits 7..14
// (2^7 times its value), so a product is 2^-7 times what it stands for. BF16: the same
// numbers, from a code at bits 6..8 (2^-126) and a scale at 2^119.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace tetrad::sm90 {

// Registers of the fragments of one K step: step s (16 k) has {row g k low, row g + 8
// k low, row g k high, row g + 8 k high} from 4 * s on.
inline constexpr int kFragmentRegisters = 16;

// The codes and scales of one lane and K step.
struct RawWeights {
  uint4 codes;
  uint2 scales;
};

// Of a lane: where its codes and its scales are in a block.
struct LanePlace {
  uint32_t codes;
  uint32_t scales;
};

__device__ inline RawWeights LoadRaw(uint32_t block, const LanePlace& place) {
  return {LoadShared16(block + place.codes), LoadShared8(block + place.scales)};
}

// No instruction that makes or uses these moves across: weights are not expanded before
// the wait above them, fragments are complete before the first wgmma.
__device__ inline void Pin(RawWeights& raw) {
  asm volatile(""
               : "+r"(raw.codes.x), "+r"(raw.codes.y), "+r"(raw.codes.z), "+r"(raw.codes.w),
                 "+r"(raw.scales.x), "+r"(raw.scales.y)::"memory");
}
__device__ inline void Pin(uint32_t (&fragment)[kFragmentRegisters]) {
#pragma unroll
  for (uint32_t& value : fragment) asm volatile("" : "+r"(value)::"memory");
}

// x times the lower or upper half of s: as an operand modifier, no instruction.
__device__ inline uint32_t MultiplyByLow(uint32_t x, uint32_t s) {
  const __half2 scale = __low2half2(*reinterpret_cast<const __half2*>(&s));
  const __half2 product = __hmul2(*reinterpret_cast<const __half2*>(&x), scale);
  return *reinterpret_cast<const uint32_t*>(&product);
}
__device__ inline uint32_t MultiplyByHigh(uint32_t x, uint32_t s) {
  const __half2 scale = __high2half2(*reinterpret_cast<const __half2*>(&s));
  const __half2 product = __hmul2(*reinterpret_cast<const __half2*>(&x), scale);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// A word of codes is two steps of one row: a scale for each.
__device__ inline void ExpandWord(Fp16Format, uint32_t word, uint32_t scales, uint32_t* fragment) {
  const FragmentPairs unpacked = UnpackWord(word);
  fragment[0] = MultiplyByLow(unpacked.pairs[0], scales);
  fragment[2] = MultiplyByLow(unpacked.pairs[1], scales);
  fragment[4] = MultiplyByHigh(unpacked.pairs[2], scales);
  fragment[6] = MultiplyByHigh(unpacked.pairs[3], scales);
}

// The sign where it is in FP16, the magnitude at bits 6..8: three places further down
// than UnpackWord() has it, hence a shift of its own for each.
__device__ inline void ExpandWord(Bf16Format, uint32_t word, uint32_t fp16_scales,
                                  uint32_t* fragment) {
  constexpr uint32_t kSign = 0x80008000;
  constexpr uint32_t kMagnitude = 0x01C001C0;
  static_assert((kSign | kMagnitude << 3) == kCodeMask);
  const auto pair = [](uint32_t sign, uint32_t magnitude) {
    return (sign & kSign) | (magnitude & kMagnitude);
  };
  // Moved to bits 4..11 and read as BF16, whose bias is larger by 112, a scale is 2^-105
  // times its value. 2^224 is beyond BF16: two steps of 2^112.
  constexpr uint32_t kTwoTo112 = (127 + 112) << 7 | (127 + 112) << 23;
  const uint32_t scales = MultiplyBf16x2(MultiplyBf16x2(fp16_scales >> 3, kTwoTo112), kTwoTo112);
  const uint32_t x6 = word << 6, x9 = word << 9;
  const uint32_t y = word ^ (word >> 3), z = word ^ (word << 2);
  const uint32_t low = __byte_perm(scales, 0, 0x1010);
  const uint32_t high = __byte_perm(scales, 0, 0x3232);
  fragment[0] = MultiplyBf16x2(pair(x6, word << 3), low);
  fragment[2] = MultiplyBf16x2(pair(x9, x6), low);
  fragment[4] = MultiplyBf16x2(pair(y, y >> 3), high);
  fragment[6] = MultiplyBf16x2(pair(z, z >> 3), high);
}

template <class Format>
__device__ inline void Expand(const RawWeights& raw, uint32_t (&fragment)[kFragmentRegisters]) {
  ExpandWord(Format{}, raw.codes.x, FirstScales(raw.scales.x), fragment);
  ExpandWord(Format{}, raw.codes.y, SecondScales(raw.scales.x), fragment + 8);
  ExpandWord(Format{}, raw.codes.z, FirstScales(raw.scales.y), fragment + 1);
  ExpandWord(Format{}, raw.codes.w, SecondScales(raw.scales.y), fragment + 9);
}

}  // namespace tetrad::sm90
