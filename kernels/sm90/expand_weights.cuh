// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From the packed weights of one K step to the fragments of its four wgmma, in
// registers: FP16 or BF16 numbers that are exactly code * scale times a power of two,
// which StoreTile() takes back.
//
// FP16: a code moves to bits 9..11 (2^-14 times its value), a scale to bits 7..14
// (2^7 times its value), so a product is 2^-7 times what it stands for. BF16: the same
// numbers, from a code at bits 6..8 (2^-126) and a scale at bits 4..11 (2^119). How, is in
// packed_weights.h, where the host can run it; what is not there is the arithmetic.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
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

// PlainBits by "Logic and Shift Instructions: lop3", whose table is the function of
// 0xF0, 0xCC and 0xAA.
struct Lop3 {
  __device__ static uint32_t Select(uint32_t a, uint32_t b, uint32_t mask) {
    constexpr uint32_t kTable = PlainBits::Select(0xF0, 0xCC, 0xAA) & 0xFF;
    return Of<kTable>(a, b, mask);
  }
  __device__ static uint32_t MaskAndSet(uint32_t a, uint32_t mask, uint32_t set) {
    constexpr uint32_t kTable = PlainBits::MaskAndSet(0xF0, 0xCC, 0xAA) & 0xFF;
    return Of<kTable>(a, mask, set);
  }
  template <uint32_t kTable>
  __device__ static uint32_t Of(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
    return result;
  }
};

template <class Pair>
__device__ inline Pair AsPair(uint32_t x) {
  return *reinterpret_cast<const Pair*>(&x);
}
template <class Pair>
__device__ inline uint32_t AsBits(Pair pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The codes of a word, and scales, as pairs of numbers; x times the lower or the upper
// half of s: which half is an operand modifier, no instruction.
template <class Format>
struct Expansion;

template <>
struct Expansion<Fp16Format> {
  __device__ static FragmentPairs Codes(uint32_t word) { return UnpackWord(word); }
  __device__ static uint32_t First(uint32_t scales) { return FirstScales(scales); }
  __device__ static uint32_t Second(uint32_t scales) { return SecondScales(scales); }
  __device__ static uint32_t ByLow(uint32_t x, uint32_t s) {
    return AsBits(__hmul2(AsPair<__half2>(x), __low2half2(AsPair<__half2>(s))));
  }
  __device__ static uint32_t ByHigh(uint32_t x, uint32_t s) {
    return AsBits(__hmul2(AsPair<__half2>(x), __high2half2(AsPair<__half2>(s))));
  }
};

template <>
struct Expansion<Bf16Format> {
  using Pair = __nv_bfloat162;
  __device__ static FragmentPairs Codes(uint32_t word) {
    Bf16Words words = MagnitudesDown<Lop3>(word);
    // Opaque: else every pair is made of the packed word, which takes twice the masks.
    asm("" : "+r"(words.of01), "+r"(words.of23));
    return UnpackBf16(words);
  }
  __device__ static uint32_t First(uint32_t scales) {
    return WithoutTop(FirstScalesAndTop<Lop3>(scales));
  }
  __device__ static uint32_t Second(uint32_t scales) {
    return WithoutTop(SecondScalesAndTop<Lop3>(scales));
  }
  __device__ static uint32_t WithoutTop(uint32_t scales) {
    return AsBits(__hsub2(AsPair<Pair>(scales), AsPair<Pair>(kBf16ScaleTop)));
  }
  __device__ static uint32_t ByLow(uint32_t x, uint32_t s) {
    return AsBits(__hmul2(AsPair<Pair>(x), __low2bfloat162(AsPair<Pair>(s))));
  }
  __device__ static uint32_t ByHigh(uint32_t x, uint32_t s) {
    return AsBits(__hmul2(AsPair<Pair>(x), __high2bfloat162(AsPair<Pair>(s))));
  }
};

// A word of codes is two steps of one row: a scale for each.
template <class Format>
__device__ inline void ExpandWord(uint32_t word, uint32_t scales, uint32_t* fragment) {
  using As = Expansion<Format>;
  const FragmentPairs codes = As::Codes(word);
  fragment[0] = As::ByLow(codes.pairs[0], scales);
  fragment[2] = As::ByLow(codes.pairs[1], scales);
  fragment[4] = As::ByHigh(codes.pairs[2], scales);
  fragment[6] = As::ByHigh(codes.pairs[3], scales);
}

template <class Format>
__device__ inline void Expand(const RawWeights& raw, uint32_t (&fragment)[kFragmentRegisters]) {
  using As = Expansion<Format>;
  ExpandWord<Format>(raw.codes.x, As::First(raw.scales.x), fragment);
  ExpandWord<Format>(raw.codes.y, As::Second(raw.scales.x), fragment + 8);
  ExpandWord<Format>(raw.codes.z, As::First(raw.scales.y), fragment + 1);
  ExpandWord<Format>(raw.codes.w, As::Second(raw.scales.y), fragment + 9);
}

}  // namespace tetrad::sm90
