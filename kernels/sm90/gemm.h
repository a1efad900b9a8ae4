// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What host and device code of the Hopper GEMM agree on, as plain data.
//
// Weights are the M side of wgmma, 128 rows a tile, expanded in registers from
// packed_weights.h; tokens (rows of A, 16-bit) are the N side, `width` of them a
// tile, fetched by the copy engine. Each CTA works through its list of tiles, which
// instances.h describes and tiles.h makes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::sm90 {

// `tiles`, `weights` and the maps are read before the grid before this one has ended,
// so that grid must not write them; tokens, alpha, row_scale and C are not touched before.
struct GemmArguments {
  // Of the same tokens, boxes of 64 k x width rows, 128-byte swizzle.
  CUtensorMap tokens[kMaxWidths];
  const uint8_t* weights = nullptr;
  std::byte* c = nullptr;
  const float* alpha = nullptr;
  const float* row_scale = nullptr;
  const TileEntry* tiles = nullptr;  // list i begins at i * tiles_per_cta
  int32_t tiles_per_cta = 0;
  ProblemTypes types;
};
static_assert(sizeof(GemmArguments) <= 4096);

// The entry points are tetrad_sm90_fp16_NAME and tetrad_sm90_bf16_NAME (NVFP4
// activations are expanded to FP16 first); image unit "gemm_fp16" or "gemm_bf16";
// grid: CTAs that `tiles` has lists for.

}  // namespace tetrad::sm90
