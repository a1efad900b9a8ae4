// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The main loop of the portable kernel: all of K of one tile. While a step is
// multiplied out of one stage, the next is expanded into the other and the one
// after that is on its way from global memory.
//
//   step s     A, B (s)     ready in stage s % 2
//              A, B (s + 1) in registers, expanded into stage (s + 1) % 2 (16-bit A: copy begun)
//              A, B (s + 2) loads begun
//              16 x 8 x 16 products of stage s % 2, k ascending
//              barrier: stage (s + 1) % 2 is ready, stage s % 2 is free
#pragma once

#include <cstdint>

#include "kernels/cuda/portable_layout.h"
#include "kernels/cuda/portable_operands.cuh"
#include "kernels/cuda/portable_tile.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tetrad::cuda {

// Of one thread: [fragment of 16 rows][fragment of 8 columns][register], where
// lane 4 g + q has (row g, columns 2 q and 2 q + 1) and (row g + 8, the same).
struct Accumulators {
  float values[kRowFragments][kColumnFragments][4];
};

__device__ inline void MultiplyAdd(Fp16Operand, float (&acc)[4], const uint32_t (&a)[4],
                                   uint32_t b0, uint32_t b1) {
  MultiplyAddFp16(acc, a, b0, b1);
}
__device__ inline void MultiplyAdd(Bf16Operand, float (&acc)[4], const uint32_t (&a)[4],
                                   uint32_t b0, uint32_t b1) {
  MultiplyAddBf16(acc, a, b0, b1);
}

// One step of `mmas` times 16 k; `a` and `b` are the lane's addresses for its
// first k in the warp's rows and columns of the stage.
template <class Operand, int kFragments>
__device__ inline void MultiplyStep(uint32_t a, uint32_t b, int mmas, Accumulators& acc) {
#pragma unroll
  for (int i = 0; i < kMmasPerStep; ++i) {
    if (i == kMmasPerStep / 2 && mmas == i) return;  // K may end with half a step
    uint32_t columns[kColumnFragments / 2][4];
#pragma unroll
    for (int pair = 0; pair < kColumnFragments / 2; ++pair) {
      LoadMatrices(columns[pair], (b ^ (i * kMmaKBytes)) + pair * (2 * kMmaColumns * kRowBytes));
    }
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      uint32_t rows[4];
      LoadMatrices(rows, (a ^ (i * kMmaKBytes)) + f * (kWarpsAlongRows * kMmaRows * kRowBytes));
#pragma unroll
      for (int j = 0; j < kColumnFragments; ++j) {
        MultiplyAdd(Operand{}, acc.values[f][j], rows, columns[j / 2][j % 2 * 2],
                    columns[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

// The first `fragments` of the warp's fragments of rows; the others hold no row of the tile.
template <class Operand>
__device__ inline void MultiplyStep(int fragments, uint32_t a, uint32_t b, int mmas,
                                    Accumulators& acc) {
  switch (fragments) {
    case 4:
      return MultiplyStep<Operand, 4>(a, b, mmas, acc);
    case 3:
      return MultiplyStep<Operand, 3>(a, b, mmas, acc);
    case 2:
      return MultiplyStep<Operand, 2>(a, b, mmas, acc);
    case 1:
      return MultiplyStep<Operand, 1>(a, b, mmas, acc);
    default:
      return;
  }
}

// The rows of A as the signature has them.
template <ActivationType type>
__device__ inline auto RowsOfA(const TileWork& work, const ProblemTypes& types) {
  if constexpr (type == ActivationType::kNvfp4) {
    return CodeRows<Fp16Operand>(work.a, work.a_scales, types.a_scale_layout, work.row, work.rows,
                                 work.k);
  } else {
    return PlainRows(work.a, work.rows, work.k);
  }
}

// Sets `acc` to the sums of the tile, times kOperandScale of each NVFP4 operand.
// All threads of the CTA; on return no thread reads `shared` any more.
template <ActivationType type>
__device__ inline void MultiplyTile(const TileWork& work, const ProblemTypes& types,
                                    uint32_t shared, Accumulators& acc) {
  using Operand = typename OperandOf<type>::Type;
  auto a_rows = RowsOfA<type>(work, types);
  CodeRows<Operand> b_rows(work.b, work.b_scales, types.b_scale_layout, work.column, work.columns,
                           work.k);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t lane = threadIdx.x % 32;
  const int warp_row = warp % kWarpsAlongRows;
  const int warp_column = warp / kWarpsAlongRows * kWarpColumns;
  const int fragments = warp_column < work.columns ? RowFragmentsOf(warp_row, work.rows) : 0;
  const uint32_t a = shared + LaneOffsetA(lane) + warp_row * (kMmaRows * kRowBytes);
  const uint32_t b = shared + kOperandBytes + LaneOffsetB(lane) + warp_column * kRowBytes;

#pragma unroll
  for (int f = 0; f < kRowFragments; ++f) {
#pragma unroll
    for (int j = 0; j < kColumnFragments; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc.values[f][j][i] = 0;
    }
  }

  const auto fetch = [&] {
    a_rows.Fetch();
    b_rows.Fetch();
  };
  const auto expand = [&](uint32_t stage) {
    a_rows.Expand(shared + stage);
    b_rows.Expand(shared + stage + kOperandBytes);
  };
  const auto publish = [] {
    WaitForCopies();
    __syncthreads();
  };
  fetch();
  expand(0);
  fetch();
  publish();
  uint32_t stage = 0;
  for (int32_t k_left = work.k; k_left > 0; k_left -= kStepK) {
    if (k_left > kStepK) {
      expand(stage ^ kStageBytes);
      fetch();
    }
    MultiplyStep<Operand>(fragments, a + stage, b + stage,
                          k_left < kStepK ? kMmasPerStep / 2 : kMmasPerStep, acc);
    publish();
    stage ^= kStageBytes;
  }
}

}  // namespace tetrad::cuda
