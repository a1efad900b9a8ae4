// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From accumulators to C: convert(fl32(fl32(acc * alpha) * row_scale)), every
// product rounded on its own, and the stores.
//
// The sums cross through the stages of shared memory, which are free by then, so
// that a warp stores 32 neighbours of C in either layout. Writes the tile's
// elements and nothing between or beside them, whatever the stride.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable_layout.h"
#include "kernels/cuda/portable_multiply.cuh"
#include "kernels/cuda/portable_tile.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tetrad::cuda {

__device__ inline void StoreElement(OutputType type, std::byte* c, int64_t element, float value) {
  if (type == OutputType::kFp32) {
    // The only type whose conversion does not make NaNs canonical.
    reinterpret_cast<uint32_t*>(c)[element] =
        value != value ? kCanonicalNanFp32 : __float_as_uint(value);
  } else {
    reinterpret_cast<uint16_t*>(c)[element] =
        type == OutputType::kFp16 ? ConvertToFp16(value) : ConvertToBf16(value);
  }
}

// All threads, after a barrier behind the last use of the stages. `unscale` is
// the power of two that the operands were short of.
__device__ inline void StoreTile(const ProblemTypes& types, const TileWork& work, float unscale,
                                 uint32_t shared, const Accumulators& acc) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t lane_sums = shared + LaneSumOffset(thread / 32, thread % 32);
#pragma unroll
  for (int j = 0; j < kColumnFragments; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int f = 0; f < kRowFragments; ++f) {
        StoreShared(FragmentSum(lane_sums, f, j, i), acc.values[f][j][i]);
      }
    }
  }
  __syncthreads();

  // In registers: what lies in shared memory would be read again after each access to it.
  const float* const row_scale = work.row_scale;
  const float alpha = work.alpha;
  std::byte* const c = work.c;
  const int64_t line_stride = work.line_stride;
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  const int lines = row_major ? work.rows : work.columns;
  const int along = thread % kPortableTileColumns;
  if (along >= (row_major ? work.columns : work.rows)) return;
#pragma unroll 4
  for (int line = thread / kPortableTileColumns; line < lines;
       line += kPortableThreads / kPortableTileColumns) {
    const int row = row_major ? line : along;
    const int column = row_major ? along : line;
    const float sum = LoadShared(shared + SumOffset(row, column));
    float value = __fmul_rn(__fmul_rn(sum, unscale), alpha);  // the first is exact
    if (row_scale != nullptr) value = __fmul_rn(value, row_scale[row]);
    StoreElement(types.c_type, c, line * line_stride + along, value);
  }
}

}  // namespace tetrad::cuda
