// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From a consumer warp's accumulators to C: the factors 2^7, alpha and row_scale, each
// product rounded to FP32, then converted and stored, in one of four ways (16 or 32
// bits, row- or column-major); which one is asked once a tile.
//
// Accumulators have columns of C along M of wgmma, two rows of C a pair of registers:
//
//   column-major  as they are: a lane has two neighbouring rows of two columns
//   row-major     transposed within the warp: a lane has four neighbouring columns of a
//                 row (FragmentRow() of packed_weights.h)
//
// Stores are of all of these where they are there and aligned, else of single elements.
#pragma once

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"

namespace tetrad::sm90 {

// A tile's factors, for the accumulators of a lane.
struct TileScale {
  float alpha;
  const float* row_scale;  // of the lane's first row; null: 1
  int rows;                // from that one on

  // Of the eight rows from 8 * j: two rows of each of two columns.
  __device__ __forceinline__ void Apply(int j, const float* acc, float (&v)[4]) const {
    // Expanded weights are 2^-7 times what they stand for. A product of its own: with
    // alpha's first, a sum that is not finite could become finite, or the factor infinite.
    constexpr float kUnit = 128.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = __fmul_rn(__fmul_rn(acc[i], kUnit), alpha);
    if (row_scale != nullptr) {
      const float s0 = 8 * j < rows ? row_scale[8 * j] : 0.0f;
      const float s1 = 8 * j + 1 < rows ? row_scale[8 * j + 1] : 0.0f;
      v[0] = __fmul_rn(v[0], s0);
      v[1] = __fmul_rn(v[1], s1);
      v[2] = __fmul_rn(v[2], s0);
      v[3] = __fmul_rn(v[3], s1);
    }
  }
};

// The bits of an FP32 element. Unlike conversions a product may have any NaN.
__device__ inline uint32_t Fp32Bits(float value) {
  return value != value ? kCanonicalNanFp32 : __float_as_uint(value);
}

// A tile's elements from the warp's first column on.
struct TileOutput {
  std::byte* c;    // the first
  int64_t stride;  // elements
  int rows;
  int columns;

  // Whether whole multiples of `elements`, of `bytes` together, are aligned in every line.
  __device__ bool IsAligned(int elements, int bytes) const {
    return ((static_cast<uint32_t>(stride) & (elements - 1)) |
            (static_cast<uint32_t>(reinterpret_cast<uint64_t>(c)) & (bytes - 1))) == 0;
  }
};

template <int kWidth>
__device__ __forceinline__ void StoreRows16(const TileOutput& to, bool bf16, const TileScale& scale,
                                            int lane, const float (&acc)[kWidth / 2]) {
  const int column = 4 * (lane % 4);
  const int left = to.columns - column;
  const int rows = to.rows - lane / 4;
  auto* c = reinterpret_cast<uint16_t*>(to.c) + (lane / 4) * to.stride + column;
  const int64_t stride = 8 * to.stride;
  // An opaque number, so that it is not formed anew for each store.
  int wide = left >= 4 && to.IsAligned(4, 8);
  asm volatile("" : "+r"(wide));
  const auto store = [&](int j, uint2 out) {
    if (8 * j >= rows) return;
    if (wide != 0) {
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
    scale.Apply(j, acc + 4 * j, v);
    store(j, {TransposeMatrix(ConvertPair(bf16, v[0], v[1])),
              TransposeMatrix(ConvertPair(bf16, v[2], v[3]))});
    c += stride;
  }
}

// acc[4 * j] and the three after it, j from kFirst to before kEnd, in a loop that is not
// unrolled: one copy of its code for each width, not one for each eight rows. Registers have
// no index, so branches choose them.
template <int kFirst, int kEnd, int kSums>
__device__ __forceinline__ void Pick(int j, const float (&acc)[kSums], float (&v)[4]) {
  constexpr int kMiddle = (kFirst + kEnd) / 2;
  if constexpr (kEnd - kFirst > 1) {
    if (j < kMiddle) {
      Pick<kFirst, kMiddle>(j, acc, v);
    } else {
      Pick<kMiddle, kEnd>(j, acc, v);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = acc[4 * kFirst + i];
    asm volatile("" : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]));
  }
}

// What TransposeMatrix() does, for a matrix of 32-bit numbers: of its upper and lower halves.
__device__ inline uint2 TransposePair(uint32_t first, uint32_t second) {
  const uint32_t lower = TransposeMatrix(__byte_perm(first, second, 0x5410));
  const uint32_t upper = TransposeMatrix(__byte_perm(first, second, 0x7632));
  return {__byte_perm(lower, upper, 0x5410), __byte_perm(lower, upper, 0x7632)};
}

template <int kWidth>
__device__ __forceinline__ void StoreRows32(const TileOutput& to, const TileScale& scale, int lane,
                                            const float (&acc)[kWidth / 2]) {
  const int column = 4 * (lane % 4);
  const int left = to.columns - column;
  const int rows = to.rows - lane / 4;
  auto* c = reinterpret_cast<uint32_t*>(to.c) + (lane / 4) * to.stride + column;
  const int64_t stride = 8 * to.stride;
  const bool wide = left >= 4 && to.IsAligned(4, 16);
#pragma unroll 1
  for (int j = 0; 8 * j < to.rows; ++j) {
    float sums[4], v[4];
    Pick<0, kWidth / 8>(j, acc, sums);
    scale.Apply(j, sums, v);
    const uint2 low = TransposePair(Fp32Bits(v[0]), Fp32Bits(v[1]));
    const uint2 high = TransposePair(Fp32Bits(v[2]), Fp32Bits(v[3]));
    if (8 * j < rows) {
      if (wide) {
        *reinterpret_cast<uint4*>(c) = {low.x, low.y, high.x, high.y};
      } else {
        if (left > 0) c[0] = low.x;
        if (left > 1) c[1] = low.y;
        if (left > 2) c[2] = high.x;
        if (left > 3) c[3] = high.y;
      }
    }
    c += stride;
  }
}

// Two rows of a column: `Pair` is two elements.
template <class Element, class Pair>
__device__ __forceinline__ void StorePair(Element* to, int rows, bool aligned, Pair pair,
                                          Element first, Element second) {
  if (aligned && rows > 1) {
    *reinterpret_cast<Pair*>(to) = pair;
  } else {
    if (rows > 0) to[0] = first;
    if (rows > 1) to[1] = second;
  }
}

template <int kWidth>
__device__ __forceinline__ void StoreColumns(const TileOutput& to, OutputType type,
                                             const TileScale& scale, int lane,
                                             const float (&acc)[kWidth / 2]) {
  const int column = FragmentRow(lane / 4);  // and two further
  const int row = 2 * (lane % 4);
  const int bytes = static_cast<int>(OutputElementBytes(type));
  std::byte* const c = to.c + (column * to.stride + row) * bytes;
  const int64_t further = 2 * to.stride * bytes;
  const bool aligned = to.IsAligned(2, 2 * bytes);
  const int rows[2] = {column < to.columns ? to.rows - row : 0,
                       column + 2 < to.columns ? to.rows - row : 0};
#pragma unroll 1
  for (int j = 0; 8 * j < to.rows; ++j) {
    float sums[4], v[4];
    Pick<0, kWidth / 8>(j, acc, sums);
    scale.Apply(j, sums, v);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::byte* const at = c + i * further;
      const int left = rows[i] - 8 * j;
      if (type == OutputType::kFp32) {
        const uint2 pair = {Fp32Bits(v[2 * i]), Fp32Bits(v[2 * i + 1])};
        StorePair(reinterpret_cast<uint32_t*>(at) + 8 * j, left, aligned, pair, pair.x, pair.y);
      } else {
        const uint32_t pair = ConvertPair(type == OutputType::kBf16, v[2 * i], v[2 * i + 1]);
        StorePair(reinterpret_cast<uint16_t*>(at) + 8 * j, left, aligned, pair,
                  static_cast<uint16_t>(pair), static_cast<uint16_t>(pair >> 16));
      }
    }
  }
}

// `warp` counts over all consumers: it has the tile's columns 16 * warp .. + 15.
template <int kWidth>
__device__ __forceinline__ void StoreTile(const GemmArguments& arguments, const TileEntry& tile,
                                          int warp, int lane, const float (&acc)[kWidth / 2]) {
  // Opaque, so that what follows from them is made here and not kept through the main loop.
  asm volatile("" : "+r"(warp), "+r"(lane));
  const int column = warp * kSlabRows;
  if (tile.columns <= column) return;
  const OutputType type = arguments.types.c_type;
  const bool row_major = arguments.types.c_layout == OutputLayout::kRowMajor;
  const int64_t line = row_major ? 1 : tile.c_stride;
  const int row = 2 * (lane % 4);
  const float* const row_scale = arguments.row_scale;
  const TileScale scale = {arguments.alpha[tile.group],
                           row_scale == nullptr ? nullptr : row_scale + tile.scale_row + row,
                           tile.rows - row};
  const TileOutput to = {arguments.c + tile.c + column * line * OutputElementBytes(type),
                         tile.c_stride, tile.rows, tile.columns - column};
  if (!row_major) {
    StoreColumns<kWidth>(to, type, scale, lane, acc);
  } else if (type == OutputType::kFp32) {
    StoreRows32<kWidth>(to, scale, lane, acc);
  } else {
    StoreRows16<kWidth>(to, type == OutputType::kBf16, scale, lane, acc);
  }
}

}  // namespace tetrad::sm90
