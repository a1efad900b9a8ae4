// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Expands NVFP4 activations (expand.h). A lane has eight codes at a time, 4 bytes in and
// 16 out, and its neighbours the codes beside them: so each instruction of a warp reads
// 128 and writes 512 bytes without gaps, where 16 codes a lane would write half sectors.
#include <cstdint>

#include "kernels/cuda/dequantise.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sm90/expand.h"
#if defined(__CUDACC__)
#include "kernels/sm90/ptx.cuh"
#endif

namespace tetrad::sm90 {
namespace {

constexpr int kWordCodes = 8;
constexpr int kExpandWarps = kExpandThreads / 32;
static_assert(kExpandPieceCodes == 32 * kWordCodes * kExpandWords);

// What the product of Fp16Operand's code and scale lacks: 2^7, twice.
constexpr uint32_t kToValue = 0x58005800;
static_assert(cuda::Fp16Operand::kOperandScale == 0x1p-7f);

// Programmatic edges are of 9.0 and later. No load of this file may be __ldg, which the
// compiler could move before the wait.
__device__ inline void MeetOtherGrids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  LetNextGridStart();
  WaitForPriorGrid();
#endif
}

// The last group that begins at or before `row`, which is no group before `from`.
__device__ inline int32_t GroupOfRow(const ExpandArguments& arguments, int32_t row, int32_t from) {
  int32_t end = arguments.group_count;
  while (end - from > 1) {
    const int32_t middle = from + (end - from) / 2;
    if (arguments.groups[middle].row <= row) {
      from = middle;
    } else {
      end = middle;
    }
  }
  return from;
}

__device__ inline uint4 ExpandWord(uint32_t codes, uint32_t scale) {
  using cuda::Fp16Operand;
  const uint32_t twice = scale | scale << 8;
  const uint32_t scales =
      cuda::MultiplyFp16x2(cuda::MovedScales<Fp16Operand>(twice), Fp16Operand::kScaleFactor);
  // All bits of NaN over zeros: so its sign, too, is not left to a multiplication.
  const uint32_t nan = cuda::NanScales(twice);
  if (nan != 0) codes = 0;
  const auto pair = [&](uint32_t i) {
    const uint32_t product = cuda::MultiplyFp16x2(cuda::MovedPair<Fp16Operand>(codes, i), scales);
    return cuda::MultiplyFp16x2(product, kToValue) | nan;
  };
  return make_uint4(pair(0), pair(1), pair(2), pair(3));
}

}  // namespace
}  // namespace tetrad::sm90

extern "C" __global__ void __launch_bounds__(tetrad::sm90::kExpandThreads)
    tetrad_sm90_expand(const __grid_constant__ tetrad::sm90::ExpandArguments arguments) {
  using namespace tetrad;
  using namespace tetrad::sm90;
  MeetOtherGrids();
  const ScaleLayout layout = arguments.scale_layout;
  const int32_t k = arguments.k;
  const auto pieces = static_cast<uint32_t>(ExpandPieces(arguments.rows, k));
  const auto of_row = static_cast<uint32_t>(CeilDiv(k, kExpandPieceCodes));
  const auto words_of_row = static_cast<uint32_t>(k / kWordCodes);
  int32_t group = 0;
  for (uint32_t piece = blockIdx.x * kExpandWarps + threadIdx.x / 32; piece < pieces;
       piece += gridDim.x * kExpandWarps) {
    const auto row = static_cast<int32_t>(piece / of_row);
    const uint32_t first = piece % of_row * (32 * kExpandWords) + threadIdx.x % 32;
    const auto* const from = reinterpret_cast<const uint32_t*>(arguments.codes + CodeBytes(row, k));
    // Everything is asked for before anything is waited for; codes before the search.
    uint32_t codes[kExpandWords] = {};
#pragma unroll
    for (int i = 0; i < kExpandWords; ++i) {
      const uint32_t word = first + 32 * i;
      if (word < words_of_row) codes[i] = from[word];
    }
    int64_t scale_row = row;
    if (layout == ScaleLayout::kBlocked) {
      group = GroupOfRow(arguments, row, group);
      const ExpandGroup begin = arguments.groups[group];
      scale_row = begin.row_block * kScaleTileRows + (row - begin.row);
    }
    const uint8_t* const scales_of_row = arguments.scales + ScaleOffset(layout, scale_row, 0, k);
    uint32_t scales[kExpandWords] = {};
#pragma unroll
    for (int i = 0; i < kExpandWords; ++i) {
      const uint32_t word = first + 32 * i;
      const uint32_t block = word / (kScaleBlock / kWordCodes);
      if (word < words_of_row) scales[i] = scales_of_row[ScaleOffset(layout, 0, block, k)];
    }
    auto* const to = reinterpret_cast<uint4*>(arguments.expanded + int64_t{row} * k);
#pragma unroll
    for (int i = 0; i < kExpandWords; ++i) {
      const uint32_t word = first + 32 * i;
      if (word < words_of_row) to[word] = ExpandWord(codes[i], scales[i]);
    }
  }
}
