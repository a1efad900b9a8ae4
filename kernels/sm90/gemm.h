// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What host and device code of the Hopper GEMM agree on, as plain data.
//
// Weights are the M side of wgmma, 128 rows a tile, expanded in registers from
// packed_weights.h; tokens (rows of A, 16-bit) are the N side, `width` of them a
// tile, fetched by the copy engine. Each CTA works through its list of tiles, which
// instances.h describes. With M on the host tiles.h makes the lists; with device-side
// M each CTA makes its own from the live counts (live_tiles.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/launch.h"
#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::sm90 {

// Device-side M: all groups have the same n and k; layouts as DeviceMProblem says. Each
// value of m_values is read once by each CTA, clamped to the capacity; what is wrong with
// them goes to the error word of the launch's state.
struct LiveM {
  const int32_t* m_values = nullptr;
  const uint32_t* covers = nullptr;  // CoverTable() of live_tiles.h
  TileEntry* lists = nullptr;        // scratch of this launch: room for grid * tiles_per_cta
  int64_t capacity_rows = 0;
  int64_t c_stride = 0;  // elements
  int32_t group_count = 0;
  int32_t n = 0;
  int32_t k = 0;
  MSource m_source = MSource::kHost;  // kHost: nothing of this is read
  uint8_t padding[3] = {};
};
static_assert(sizeof(LiveM) == 56);

// `tiles`, `weights` and the maps are read before the grid before this one has ended, so that
// grid must not write them; tokens, alpha, row_scale, m_values, `state` and C are not touched
// before.
struct GemmArguments {
  // Of the same tokens, boxes of 64 k x width rows, 128-byte swizzle.
  CUtensorMap tokens[kMaxWidths];
  const uint8_t* weights = nullptr;
  std::byte* c = nullptr;
  const float* alpha = nullptr;
  const float* row_scale = nullptr;
  const TileEntry* tiles = nullptr;  // host M: list i begins at i * tiles_per_cta
  cuda::LaunchState* state = nullptr;
  LiveM live;
  int32_t tiles_per_cta = 0;
  ProblemTypes types;   // a_type is of the tokens, not of what they were expanded from
  bool begins = false;  // no prepare kernel before: state.begun_ns is this kernel's to set
  uint8_t padding = 0;
};
static_assert(sizeof(GemmArguments) <= 4096);

// The entry points are tetrad_sm90_fp16_NAME and tetrad_sm90_bf16_NAME (NVFP4
// activations are expanded to FP16 first, prepare.h); image unit "gemm_fp16" or
// "gemm_bf16"; grid: CTAs that `tiles` has lists for, or with device-side M any.

}  // namespace tetrad::sm90
