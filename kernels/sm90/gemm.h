// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What host and device code of the Hopper GEMM agree on, as plain data.
//
// Weights are the M side of wgmma, 128 rows a tile, expanded in registers from
// packed_weights.h; tokens (rows of A, 16-bit) are the N side, `width` of them a
// tile, fetched by the copy engine. Each CTA works through its list of tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda.h>

#include "kernels/cuda/launch.h"
#include "kernels/problem.h"

namespace tetrad::sm90 {

inline constexpr int32_t kThreads = 384;  // a producer and two consumer warpgroups
inline constexpr int32_t kMaxWidths = 4;  // widths that one instance of the kernel knows

// A tile: 128 columns of C from `column`, `rows` rows. Ends of groups are cut by
// `rows` and `columns`; a tile with width -1 ends a CTA's list.
struct TileEntry {
  uint32_t block = 0;      // first block of the strip in the packed weights
  int32_t token = 0;       // row of the first token in the tensor map
  int32_t rows = 0;        // of C, at most the width
  int32_t columns = 0;     // of C that exist from this strip on; may exceed 128
  int32_t steps = 0;       // of 64 k
  int32_t group = 0;       // of alpha
  int32_t scale_row = 0;   // of row_scale
  int32_t width = -1;      // which of the instance's widths
  int64_t c = 0;           // byte of element (first row, first column)
  int64_t c_stride = 0;    // elements
};
static_assert(sizeof(TileEntry) == 48 && std::is_trivially_copyable_v<TileEntry>);

struct GemmArguments {
  // Of the same tokens, boxes of 64 k x width rows, 128-byte swizzle.
  CUtensorMap tokens[kMaxWidths];
  const uint8_t* weights = nullptr;
  std::byte* c = nullptr;
  const float* alpha = nullptr;
  const float* row_scale = nullptr;
  const TileEntry* tiles = nullptr;  // list i begins at i * tiles_per_cta
  cuda::LaunchState* state = nullptr;
  int32_t tiles_per_cta = 0;
  ProblemTypes types;
};
static_assert(sizeof(GemmArguments) <= 4096);

// One instance of the kernel: a ring of slots in shared memory and the widths it
// is compiled for. Of each width a slot holds as many K steps as fit, one or an
// even number.
struct Instance {
  const char* name;
  int32_t slot_bytes;
  int32_t slots;
  int32_t widths[kMaxWidths];  // ascending, 0: none
};

constexpr int32_t StepBytes(int32_t width) { return 4608 + width * 128; }
constexpr int32_t StepsPerSlot(const Instance& instance, int32_t width) {
  const int32_t fit = instance.slot_bytes / StepBytes(width);
  return fit >= 2 ? (fit < 8 ? fit & ~1 : 8) : fit;
}
// Barriers and one alignment of 1024.
inline constexpr int32_t kSharedExtra = 2048;
constexpr int32_t SharedBytes(const Instance& instance) {
  return instance.slots * instance.slot_bytes + kSharedExtra;
}

#define TETRAD_SM90_INSTANCES(X)                   \
  X(a, 43008, 5, 64, 80, 96, 128)                  \
  X(b, 52224, 4, 64, 80, 168, 0)                   \
  X(c, 53248, 4, 96, 104, 112, 0)                  \
  X(d, 45056, 5, 8, 16, 32, 64)                    \
  X(e, 37888, 6, 64, 128, 248, 0)                  \
  X(f, 37888, 6, 128, 256, 0, 0)

#define TETRAD_SM90_INSTANCE(name, slot, slots, t0, t1, t2, t3) \
  Instance{#name, slot, slots, {t0, t1, t2, t3}},
inline constexpr Instance kInstances[] = {TETRAD_SM90_INSTANCES(TETRAD_SM90_INSTANCE)};
#undef TETRAD_SM90_INSTANCE

}  // namespace tetrad::sm90
