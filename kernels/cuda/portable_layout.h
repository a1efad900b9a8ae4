// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the portable kernel keeps what: index arithmetic as constexpr functions,
// so that the host can test it against the definitions.
//
// Dynamic shared memory of a CTA: two stages, each one K step of both operands
// as 16-bit numbers. Rows of 128 bytes; 16-byte chunk c of row r lies at chunk
// c ^ (r % 8), so that eight rows' reads of one chunk, and the writes of a
// quarter warp, touch every bank once.
//
//   byte      0      16384     32768     49152     65536
//             | A, even | B, even | A, odd  | B, odd  |   (K step)
//
//   one operand   row   chunk 0 .. 7 (8 numbers of k each)
//                  0    0 1 2 3 4 5 6 7
//                  1    1 0 3 2 5 4 7 6
//                  2    2 3 0 1 6 7 4 5
//                 ...                          repeats every 8 rows, 128 rows
//
// Warps: 2 along rows x 4 along columns. Fragments of 16 rows alternate between
// the two, so that a tile of few rows still feeds both; each warp has 32 columns.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable.h"
#include "kernels/nvfp4.h"

namespace tetrad::cuda {

// m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16").
inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMmaK = 16;

inline constexpr int kStepK = 64;
inline constexpr int kMmasPerStep = kStepK / kMmaK;

inline constexpr int kChunkBytes = 16;
inline constexpr int kRowBytes = kStepK * 2;
inline constexpr int kChunksPerRow = kRowBytes / kChunkBytes;
inline constexpr int kOperandBytes = kPortableTileRows * kRowBytes;
inline constexpr int kStageBytes = 2 * kOperandBytes;
static_assert(2 * kStageBytes == kPortableSharedBytes);
static_assert(kPortableTileRows == kPortableTileColumns && kChunksPerRow == 8);

inline constexpr int kWarps = kPortableThreads / 32;
inline constexpr int kWarpsAlongRows = 2;
inline constexpr int kWarpsAlongColumns = kWarps / kWarpsAlongRows;
inline constexpr int kRowFragments = kPortableTileRows / kMmaRows / kWarpsAlongRows;
inline constexpr int kWarpColumns = kPortableTileColumns / kWarpsAlongColumns;
inline constexpr int kColumnFragments = kWarpColumns / kMmaColumns;
static_assert(kRowFragments == 4 && kColumnFragments == 4);

// A thread expands half a row of a step: 32 codes (16 bytes) and 2 scales. A
// warp thereby expands the 16 rows of one fragment.
inline constexpr int kThreadCodes = kStepK / 2;
static_assert(kPortableThreads == 2 * kPortableTileRows && kMmaRows == 16);
static_assert(kThreadCodes == kKMultiple);

// Byte of a chunk in an operand of a stage.
TETRAD_HOST_DEVICE constexpr uint32_t ChunkOffset(uint32_t row, uint32_t chunk) {
  return row * kRowBytes + ((chunk ^ row % kChunksPerRow) * kChunkBytes);
}

// The chunk whose address a lane gives to ldmatrix.x4 for k 0..15 of a step; k
// 16 i and on is at this offset ^ (i * 32), rows 8 j and on at this + 8 j rows.
// A: 16 rows x 16 k. B: 16 columns x 16 k, two fragments.
TETRAD_HOST_DEVICE constexpr uint32_t LaneOffsetA(uint32_t lane) {
  return ChunkOffset(lane % 16, lane / 16);
}
TETRAD_HOST_DEVICE constexpr uint32_t LaneOffsetB(uint32_t lane) {
  return ChunkOffset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
inline constexpr uint32_t kMmaKBytes = kMmaK * 2;

// The epilogue's use of the same memory: the tile's sums, [row][column] of FP32.
// Columns are exchanged within 32 so that neither the stores of a fragment nor
// reads along a row or along a column meet in a bank.
static_assert(kPortableTileRows * kPortableTileColumns * 4 == kPortableSharedBytes);
TETRAD_HOST_DEVICE constexpr uint32_t SumOffset(uint32_t row, uint32_t column) {
  return (row * kPortableTileColumns + (column ^ (row % 4 * 8 + row / 4 % 8))) * 4;
}

// The same for register i of fragment (f, j), where lane 4 g + q has columns 2 q
// and 2 q + 1 of rows g (i = 0, 1) and g + 8 (i = 2, 3): few addresses, and constants
// added to them.
TETRAD_HOST_DEVICE constexpr uint32_t LaneSumOffset(uint32_t warp, uint32_t lane) {
  return SumOffset(warp % kWarpsAlongRows * kMmaRows + lane / 4,
                   warp / kWarpsAlongRows * kWarpColumns + lane % 4 * 2);
}
TETRAD_HOST_DEVICE constexpr uint32_t FragmentSum(uint32_t lane_sums, uint32_t f, uint32_t j,
                                                  uint32_t i) {
  const uint32_t half = i / 2;
  const uint32_t exchanged = j * kMmaColumns + half * 2 + i % 2;
  const uint32_t rows = f * (kWarpsAlongRows * kMmaRows) + half * (kMmaRows / 2);
  return (lane_sums ^ exchanged * 4) + rows * kPortableTileColumns * 4;
}

// Fragments of 16 rows that a warp computes of a tile: numbers warp_row,
// warp_row + kWarpsAlongRows, ... below ceil(rows / 16).
TETRAD_HOST_DEVICE constexpr int RowFragmentsOf(int warp_row, int rows) {
  return ((rows + kMmaRows - 1) / kMmaRows - warp_row + kWarpsAlongRows - 1) / kWarpsAlongRows;
}

// Byte of the two scales of k 32 * half and on of step 0, and bytes from one
// step to the next.
TETRAD_HOST_DEVICE constexpr int64_t FirstScales(ScaleLayout layout, int64_t row, int half,
                                                 int64_t k) {
  return ScaleOffset(layout, row, 2 * half, k);
}
TETRAD_HOST_DEVICE constexpr int64_t ScaleStep(ScaleLayout layout) {
  return layout == ScaleLayout::kLinear ? kStepK / kScaleBlock : kScaleTileBytes;
}

// Steps in which a thread with this half of the rows has something to load.
TETRAD_HOST_DEVICE constexpr int32_t StepsOfHalf(int32_t k, int half) {
  return (k / kThreadCodes + 1 - half) / 2;
}

}  // namespace tetrad::cuda
