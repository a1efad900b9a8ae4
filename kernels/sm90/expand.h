// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings NVFP4 activations into FP16 for the Hopper GEMM (gemm.h), on a device of any
// architecture. wgmma reads tokens from shared memory, where the copy engine puts
// them: nobody could expand them on the way but warps of the GEMM, once for each strip
// of weights. Here it is done once, into scratch that the GEMM then reads from L2.
// Values are code * scale, nothing else, in natural K order; FP16 holds all of them.
// Bit 7 of a scale is ignored; 0x7F makes its 16 numbers NaN (0x7FFF), zeros too.
//
// The next grid may start at once: a GEMM behind a programmatic edge fetches weights
// meanwhile, and waits for this grid before it fetches tokens. In turn this grid waits
// for the one before it, which may still write the codes or read the scratch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/nvfp4.h"

namespace tetrad::sm90 {

// Where a group of the stack begins in A and in its blocked scales. Groups ascend, the
// first begins at row 0; one without rows begins where the next does.
struct ExpandGroup {
  int32_t row = 0;
  int32_t row_block = 0;  // sum over the groups before of ceil(M / 128)
};

// Bytes: CodeBytes(rows, k); of scales linear [rows, k / 16], or of row-blocks as the
// groups say; rows * k * 2. Addresses are multiples of 16. Nothing beyond is read, and
// what pads blocked scales is not.
struct ExpandArguments {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  uint16_t* expanded = nullptr;         // FP16 [rows, k], dense
  const ExpandGroup* groups = nullptr;  // blocked scales only; of the plan, never changes
  int32_t rows = 0;
  int32_t k = 0;  // a multiple of 32
  int32_t group_count = 0;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  uint8_t padding[3] = {};
};
static_assert(sizeof(ExpandGroup) == 8 && sizeof(ExpandArguments) == 48 &&
              std::is_trivially_copyable_v<ExpandArguments>);

// tetrad_sm90_expand(ExpandArguments), image unit "expand": any grid of kExpandThreads.
// More CTAs than ExpandCtas() have nothing to do; with more than reside at once the next
// grid starts late. A warp takes kExpandWords words of eight codes a lane, of one row, at
// a time. With 32 registers a thread, a CTA has room beside one of the GEMM's "decode".
inline constexpr char kExpandEntry[] = "tetrad_sm90_expand";
inline constexpr int32_t kExpandThreads = 128;
inline constexpr int32_t kExpandWords = 4;
inline constexpr int32_t kExpandPieceCodes = 32 * 8 * kExpandWords;

constexpr int64_t ExpandPieces(int64_t rows, int64_t k) {
  return rows * CeilDiv(k, kExpandPieceCodes);
}
constexpr int64_t ExpandCtas(int64_t rows, int64_t k) {
  return CeilDiv(ExpandPieces(rows, k), kExpandThreads / 32);
}

}  // namespace tetrad::sm90
