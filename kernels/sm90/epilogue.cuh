// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From a consumer warp's accumulators to C: the factors 2^7 * alpha and row_scale, each
// product rounded to FP32, then to FP16 or BF16 and stored. Accumulators have columns
// of C along M of wgmma, two rows of C a pair of registers: transposed within the warp,
// a lane owns four neighbouring columns of a row (FragmentRow() of packed_weights.h).
#pragma once

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"

namespace tetrad::sm90 {

// `warp` counts over all consumers: it has the tile's columns 16 * warp .. + 15.
template <int kWidth>
__device__ __forceinline__ void StoreTile(const GemmArguments& arguments, const TileEntry& tile,
                                          int warp, int lane, float (&acc)[kWidth / 2]) {
  constexpr float kUnit = 128.0f;  // expanded weights are 2^-7 times what they stand for
  if (tile.columns <= warp * kSlabRows) return;
  const float alpha = arguments.alpha[tile.group];
  float factor = alpha * kUnit;
  if (!(fabsf(alpha) < 0x1p120f)) {
    // The product above may not be finite.
#pragma unroll
    for (float& value : acc) value *= kUnit;
    factor = alpha;
  }
  const int column = warp * kSlabRows + 4 * (lane % 4);
  const int left = tile.columns - column;
  auto* c = reinterpret_cast<uint16_t*>(arguments.c + tile.c) + (lane / 4) * tile.c_stride + column;
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

}  // namespace tetrad::sm90
