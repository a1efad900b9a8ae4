// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace tetrad::sm90 {

template <int kStrips_, int kSlotBytes_, int kSlots_, int... kWidths_>
struct InstanceOf {
  static constexpr bool kPair = kStrips_ == 0;  // two CTAs an SM
  static constexpr int kStrips = kPair ? 1 : kStrips_;  // of 128 rows of weights a tile
  static constexpr int kThreads = 128 + 256 * kStrips;
  static constexpr int kStepWeights = kStrips * kBlockBytes;
  static constexpr int kSlotBytes = kSlotBytes_;
  static constexpr int kSlots = kSlots_;
  static constexpr int kCount = sizeof...(kWidths_);
  static constexpr int Width(int i) {
    const int widths[] = {kWidths_...};
    return widths[i];
  }
  // Powers of two, so that they divide most K.
  static constexpr int Steps(int width) {
    const int fit = kSlotBytes / (kStepWeights + width * 128);
    return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
  }
#ifndef GROUP
#define GROUP 1
#endif
  static constexpr int Group(int width) { return Steps(width) == 1 || width > 192 || kStrips > 1 ? 1 : GROUP; }
};

// Position in the ring; the parity of its barriers' phase.
template <class I>
struct RingPosition {
  uint32_t slot = 0;
  uint32_t parity = 0;
  __device__ void Advance() {
    if (++slot == I::kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

struct Shared {
  uint32_t slots;
  uint32_t full;   // barriers
  uint32_t empty;
};

// The codes and scales of one lane and K step.
struct RawWeights {
  uint4 codes;
  uint2 scales;
};

__device__ inline RawWeights LoadRaw(uint32_t codes, uint32_t scales) {
  return {LoadShared16(codes), LoadShared8(scales)};
}

__device__ inline uint32_t LowTwice(uint32_t pair) {
  return __byte_perm(pair, 0, 0x1010);
}
__device__ inline uint32_t HighTwice(uint32_t pair) {
  return __byte_perm(pair, 0, 0x3232);
}

__device__ inline uint32_t MulLow(Fp16Format, uint32_t x, uint32_t s) {
  const __half2 sv = __low2half2(*reinterpret_cast<const __half2*>(&s));
  const __half2 r = __hmul2(*reinterpret_cast<const __half2*>(&x), sv);
  return *reinterpret_cast<const uint32_t*>(&r);
}
__device__ inline uint32_t MulHigh(Fp16Format, uint32_t x, uint32_t s) {
  const __half2 sv = __high2half2(*reinterpret_cast<const __half2*>(&s));
  const __half2 r = __hmul2(*reinterpret_cast<const __half2*>(&x), sv);
  return *reinterpret_cast<const uint32_t*>(&r);
}

// Fragment registers: step s: {row g k low, row g+8 k low, row g k high, row g+8 k high}.
__device__ inline void ExpandWord(Fp16Format f, uint32_t word, uint32_t scales, uint32_t* fragment) {
  const FragmentPairs p = UnpackWord(word);
  fragment[0] = MulLow(f, p.pairs[0], scales);
  fragment[2] = MulLow(f, p.pairs[1], scales);
  fragment[4] = MulHigh(f, p.pairs[2], scales);
  fragment[6] = MulHigh(f, p.pairs[3], scales);
}
__device__ inline void Expand(Fp16Format f, const RawWeights& raw, uint32_t (&fragment)[16]) {
  ExpandWord(f, raw.codes.x, FirstScales(raw.scales.x), fragment);
  ExpandWord(f, raw.codes.y, SecondScales(raw.scales.x), fragment + 8);
  ExpandWord(f, raw.codes.z, FirstScales(raw.scales.y), fragment + 1);
  ExpandWord(f, raw.codes.w, SecondScales(raw.scales.y), fragment + 9);
}

__device__ inline void ExpandWord(Bf16Format, uint32_t word, uint32_t scales, uint32_t* fragment) {
  constexpr uint32_t kSign = 0x80008000, kMagnitude = 0x01C001C0;
  const uint32_t x6 = word << 6, x9 = word << 9, y = word ^ (word >> 3), z = word ^ (word << 2);
  const auto pair = [](uint32_t sign, uint32_t magnitude) {
    return (sign & kSign) | (magnitude & kMagnitude);
  };
  const uint32_t low = LowTwice(scales), high = HighTwice(scales);
  fragment[0] = MultiplyBf16x2(pair(x6, word << 3), low);
  fragment[2] = MultiplyBf16x2(pair(x9, x6), low);
  fragment[4] = MultiplyBf16x2(pair(y, y >> 3), high);
  fragment[6] = MultiplyBf16x2(pair(z, z >> 3), high);
}
// UE5M3 at bits 4..11 with the exponent 2^-112 too small; twice 2^112 gives s * 2^119.
__device__ inline uint32_t Bf16Scales(uint32_t fp16_pair) {
  constexpr uint32_t kFactor = (112 + 127) << 7 | (112 + 127) << 23;
  return MultiplyBf16x2(MultiplyBf16x2(fp16_pair >> 3, kFactor), kFactor);
}
__device__ inline void Expand(Bf16Format f, const RawWeights& raw, uint32_t (&fragment)[16]) {
  ExpandWord(f, raw.codes.x, Bf16Scales(FirstScales(raw.scales.x)), fragment);
  ExpandWord(f, raw.codes.y, Bf16Scales(SecondScales(raw.scales.x)), fragment + 8);
  ExpandWord(f, raw.codes.z, Bf16Scales(FirstScales(raw.scales.y)), fragment + 1);
  ExpandWord(f, raw.codes.w, Bf16Scales(SecondScales(raw.scales.y)), fragment + 9);
}

// No instruction that makes or uses these moves across.
__device__ inline void Pin(RawWeights& raw) {
  asm volatile("" : "+r"(raw.codes.x), "+r"(raw.codes.y), "+r"(raw.codes.z), "+r"(raw.codes.w),
               "+r"(raw.scales.x), "+r"(raw.scales.y)::"memory");
}
__device__ inline void Pin(uint32_t (&fragment)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(fragment[i])::"memory");
}

// What all lanes hold, so that the compiler knows it: only where it can prove that
// a warp does not diverge does it keep descriptors in uniform registers.
__device__ inline int Uniform(int x) { return __reduce_max_sync(0xFFFFFFFFu, x); }
__device__ inline bool Uniformly(bool x) { return __any_sync(0xFFFFFFFFu, x); }

// The products of kGroup K steps, as one group of wgmma.
template <class Format, int kGroup, int kWidth>
__device__ __forceinline__ void MultiplyGroup(RawWeights (&raw)[kGroup], uint32_t tokens,
                                              uint32_t (&fragment)[kGroup][16],
                                              float (&acc)[kWidth / 2]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    Pin(raw[i]);
    Expand(Format{}, raw[i], fragment[i]);
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) Pin(fragment[i]);
  const uint32_t descriptor = OperandDescriptor(tokens);
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Wgmma(Format{}, acc, fragment[i] + 4 * k,
            descriptor + i * (kWidth * 128 / 16) + k * kDescriptorStep);
    }
  }
  WgmmaCommit();
}

template <int kGroup>
__device__ __forceinline__ void LoadGroup(RawWeights (&raw)[kGroup], uint32_t weights,
                                          uint32_t lane_codes, uint32_t lane_scales) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    raw[i] = LoadRaw(weights + i * kBlockBytes + lane_codes, weights + i * kBlockBytes + lane_scales);
  }
}

template <class I, class Format, int kWidth>
__device__ __forceinline__ void MultiplyTile(const Shared& shared, RingPosition<I>& at, int steps,
                                             uint32_t lane_codes, uint32_t lane_scales, bool elected,
                                             float (&acc)[kWidth / 2]) {
  constexpr int kSteps = I::Steps(kWidth);
  constexpr int kGroup = I::Group(kWidth);
  constexpr int kPerSlot = kSteps / kGroup;
  constexpr int kUnroll = kPerSlot == 1 ? 2 : kPerSlot;  // groups
  static_assert(kUnroll % 2 == 0 && kSteps % kGroup == 0);
  constexpr uint32_t kWeights = kSteps * kWidth * 128;  // byte of a slot where weights begin
  constexpr uint32_t kTokens = kWidth * 128;            // bytes of a step
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) acc[i] = 0;
  int iterations = steps / (kUnroll * kGroup);
  uint32_t fragment[2][kGroup][16];
  if (Uniformly(iterations > 0)) {
    uint32_t slot = shared.slots + at.slot * I::kSlotBytes;
    WaitFor(shared.full + at.slot * 8, at.parity);
    RawWeights raw[kGroup];
    LoadGroup(raw, slot + kWeights, lane_codes, lane_scales);
    uint32_t release = 0;  // the barrier of the slot before this one, if of this tile
    while (true) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        uint32_t index = at.slot;
        asm volatile("" : "+r"(index));
        MultiplyGroup<Format, kGroup, kWidth>(
            raw, shared.slots + index * I::kSlotBytes + (u % kPerSlot) * kGroup * kTokens,
            fragment[u & 1], acc);
        const uint32_t to_release = release;
        if (u + 1 == kUnroll && Uniformly(--iterations == 0)) break;
        if ((u + 1) % kPerSlot == 0) {
          release = shared.empty + at.slot * 8;
          at.Advance();
          slot = shared.slots + at.slot * I::kSlotBytes;
          WaitFor(shared.full + at.slot * 8, at.parity);
        }
        LoadGroup(raw, slot + kWeights + ((u + 1) % kPerSlot) * kGroup * kBlockBytes, lane_codes,
                  lane_scales);
        WgmmaWait<1>();
        // What a slot's first group waited for were the last products of the slot before.
        if (u % kPerSlot == 0 && elected && to_release != 0) Arrive(to_release);
      }
      if (Uniformly(iterations == 0)) break;
    }
    WgmmaWait<0>();
    if (elected) {
      if (kPerSlot == 1) Arrive(release);
      Arrive(shared.empty + at.slot * 8);
    }
    at.Advance();
  }
  const int rest = steps % (kUnroll * kGroup);
  for (int step = 0; Uniformly(step < rest); ++step) {
    const uint32_t slot = shared.slots + at.slot * I::kSlotBytes;
    const uint32_t weights = slot + kWeights + step % kSteps * kBlockBytes;
    if (Uniformly(step % kSteps == 0)) WaitFor(shared.full + at.slot * 8, at.parity);
    RawWeights raw[1];
    LoadGroup(raw, weights, lane_codes, lane_scales);
    MultiplyGroup<Format, 1, kWidth>(raw, slot + step % kSteps * kTokens,
                                     *reinterpret_cast<uint32_t(*)[1][16]>(&fragment[0][0]), acc);
    WgmmaWait<0>();
    if (Uniformly(step + 1 == rest || (step + 1) % kSteps == 0)) {
      if (elected) Arrive(shared.empty + at.slot * 8);
      at.Advance();
    }
  }
}

// "cvt": two numbers at once, `low` to the lower half.
__device__ inline uint32_t ConvertPair(bool bf16, float low, float high) {
  uint32_t pair;
  if (bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

template <int kWidth>
__device__ __forceinline__ void StoreTile(const GemmArguments& arguments, const TileEntry& tile,
                                          int warp, int lane, float (&acc)[kWidth / 2]) {
  if (tile.columns <= warp * kSlabRows) return;
  const float alpha = arguments.alpha[tile.group];
  float factor = alpha * 128.0f;
  if (!(fabsf(alpha) < 0x1p120f)) {
    // The product above may not be finite.
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) acc[i] *= 128.0f;
    factor = alpha;
  }
  const int column = warp * kSlabRows + 4 * (lane % 4);
  const int left = tile.columns - column;
  auto* c = reinterpret_cast<uint16_t*>(arguments.c + tile.c) +
            (lane / 4) * tile.c_stride + column;
  const int64_t stride = 8 * tile.c_stride;
  const bool wide = left >= 4 && (tile.c_stride & 3) == 0 && (tile.c & 7) == 0;
  const bool bf16 = arguments.types.c_type == OutputType::kBf16;
  const int rows = tile.rows - lane / 4;
  const float* const row_scale = arguments.row_scale;
  const auto store = [&](int j, uint2 out) {
    if (8 * j >= rows) return;
    if (wide) {
      *reinterpret_cast<uint2*>(c) = out;
    } else {
      if (left > 0) c[0] = static_cast<uint16_t>(out.x);
      if (left > 1) c[1] = static_cast<uint16_t>(out.x >> 16);
      if (left > 2) c[2] = static_cast<uint16_t>(out.y);
      if (left > 3) c[3] = static_cast<uint16_t>(out.y >> 16);
    }
  };
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = __fmul_rn(acc[4 * j + i], factor);
    if (row_scale != nullptr) {
      const int row = 8 * j + 2 * (lane % 4);
      const float* scales = row_scale + tile.scale_row + row;
      const float s0 = row < tile.rows ? scales[0] : 0.0f;
      const float s1 = row + 1 < tile.rows ? scales[1] : 0.0f;
      v[0] = __fmul_rn(v[0], s0);
      v[1] = __fmul_rn(v[1], s1);
      v[2] = __fmul_rn(v[2], s0);
      v[3] = __fmul_rn(v[3], s1);
    }
    store(j, {TransposeMatrix(ConvertPair(bf16, v[0], v[1])),
              TransposeMatrix(ConvertPair(bf16, v[2], v[3]))});
    c += stride;
  }
}

template <class I, class Format>
__device__ __forceinline__ void Produce(const GemmArguments& arguments, const Shared& shared) {
  RingPosition<I> at;
  at.parity = 1;  // the slots are empty before their first use
  const TileEntry* tile = arguments.tiles + int64_t{blockIdx.x} * arguments.tiles_per_cta;
  bool waited = false;
  for (; tile->width >= 0; ++tile) {
    const int which = tile->width;
    int width = 0, per_slot = 1;
#pragma unroll
    for (int w = 0; w < I::kCount; ++w) {
      if (w == which) {
        width = I::Width(w);
        per_slot = I::Steps(I::Width(w));
      }
    }
    const CUtensorMap* map = arguments.tokens + which;
    const uint8_t* weights = arguments.weights + int64_t{tile->block} * kBlockBytes;
    const int steps = tile->steps;
    const int token = tile->token;
    const int strips = I::kStrips > 1 && tile->columns > kBlockRows ? 2 : 1;
    for (int step = 0; step < steps; step += per_slot) {
      const int count = min(per_slot, steps - step);
      const uint32_t full = shared.full + at.slot * 8;
      const uint32_t slot = shared.slots + at.slot * I::kSlotBytes;
      WaitFor(shared.empty + at.slot * 8, at.parity);
      ArriveExpecting(full, count * (strips * kBlockBytes + width * 128));
      CopyBulk(slot + per_slot * width * 128, weights, count * kBlockBytes, full);
      if (strips > 1) {
        CopyBulk(slot + per_slot * (width * 128 + kBlockBytes), weights + int64_t{steps} * kBlockBytes,
                 count * kBlockBytes, full);
      }
      if (!waited) {
        WaitForPriorGrid();
        waited = true;
      }
      for (int i = 0; i < count; ++i) {
        CopyBox(slot + i * width * 128, map, (step + i) * kBlockK, token, full);
      }
      weights += count * kBlockBytes;
      at.Advance();
    }
  }
}

template <class I, class Format>
__device__ __forceinline__ void Consume(const GemmArguments& arguments, const Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slab = warp % kSlabs;
  const uint32_t lane_codes = slab * kSlabCodeBytes + lane * 16;
  const uint32_t lane_scales = kBlockCodeBytes + slab * kSlabScaleBytes + lane / 4 * 8;
  const bool elected = lane == 0;
  RingPosition<I> at;
  const TileEntry* next = arguments.tiles + int64_t{blockIdx.x} * arguments.tiles_per_cta;
  WaitForPriorGrid();
  while (true) {
    const int which = Uniform(next->width);
    if (Uniformly(which < 0)) break;
    const int steps = Uniform(next->steps);
    const auto run = [&]<int kWidth>() {
      float acc[kWidth / 2];
      const uint32_t strip = warp / kSlabs * (I::Steps(kWidth) * kBlockBytes);
      MultiplyTile<I, Format, kWidth>(shared, at, steps, strip + lane_codes, strip + lane_scales,
                                      elected, acc);
      StoreTile<kWidth>(arguments, *next, warp, lane, acc);
    };
    if (Uniformly(which == 0)) run.template operator()<I::Width(0)>();
    if constexpr (I::kCount > 1) {
      if (Uniformly(which == 1)) run.template operator()<I::Width(1)>();
    }
    if constexpr (I::kCount > 2) {
      if (Uniformly(which == 2)) run.template operator()<I::Width(2)>();
    }
    if constexpr (I::kCount > 3) {
      if (Uniformly(which == 3)) run.template operator()<I::Width(3)>();
    }
    ++next;
  }
}

template <class I, class Format>
__device__ __forceinline__ void RunGemm(const GemmArguments& arguments) {
  extern __shared__ uint8_t dynamic[];
  const uint32_t base = (SharedAddress(dynamic) + 1023) & ~1023u;
  const Shared shared = {base, base + I::kSlots * I::kSlotBytes,
                         base + I::kSlots * I::kSlotBytes + I::kSlots * 8};
  if (threadIdx.x == 0) {
    for (int i = 0; i < I::kSlots; ++i) {
      InitBarrier(shared.full + i * 8, 1);
      InitBarrier(shared.empty + i * 8, 8 * I::kStrips);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  LetNextGridStart();
  if (threadIdx.x < 128) {
    if constexpr (!I::kPair) GiveRegisters<I::kStrips == 1 ? 40 : 24>();
    if (threadIdx.x == 0) Produce<I, Format>(arguments, shared);
  } else {
    if constexpr (!I::kPair) TakeRegisters<I::kStrips == 1 ? 232 : 112>();
    Consume<I, Format>(arguments, shared);
  }
}

}  // namespace tetrad::sm90
