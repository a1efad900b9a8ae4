// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The instances of the Hopper GEMM and the tiles that they are given: what a host
// needs to cut groups into tiles (tiles.h, live_tiles.h), without a toolkit. gemm.h has
// the launch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/packed_weights.h"

namespace tetrad::sm90 {

inline constexpr int32_t kMaxWidths = 4;  // widths that one instance of the kernel knows

// A tile: `rows` rows of C by 128 columns for each strip of its instance. Ends of groups
// are cut by `rows` and `columns`; a tile with width -1 ends a CTA's list.
struct TileEntry {
  uint32_t block = 0;     // first block of the strip in the packed weights
  int32_t token = 0;      // row of the first token in the tensor map
  int32_t rows = 0;       // of C, at most the width
  int32_t columns = 0;    // of C that exist from its first strip on; may exceed the tile's
  int32_t steps = 0;      // of 64 k
  int32_t group = 0;      // of alpha
  int32_t scale_row = 0;  // of row_scale
  int32_t width = -1;     // which of the instance's widths
  int64_t c = 0;          // byte of element (first row, first column)
  int64_t c_stride = 0;   // elements
};
static_assert(sizeof(TileEntry) == 48 && std::is_trivially_copyable_v<TileEntry>);

// One instance of the kernel: how many strips of 128 rows of weights a tile has
// (each takes two consumer warpgroups), the ring of slots in shared memory, and
// the widths it is compiled for. Of each width a slot holds as many K steps as
// fit: 1, 2, 4 or 8, so that they divide most K.
struct Instance {
  const char* name;
  int32_t strips;
  int32_t slot_bytes;
  int32_t slots;
  int32_t widths[kMaxWidths];  // ascending, 0: none
};

constexpr int32_t Threads(const Instance& instance) { return 128 + 256 * instance.strips; }
constexpr int32_t StepBytes(const Instance& instance, int32_t width) {
  return instance.strips * kBlockBytes + width * kBlockK * 2;
}
constexpr int32_t StepsPerSlot(const Instance& instance, int32_t width) {
  const int32_t fit = instance.slot_bytes / StepBytes(instance, width);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
// Slots, two barriers each, and room to begin at a multiple of 1024.
constexpr int32_t SharedBytes(const Instance& instance) {
  return instance.slots * (instance.slot_bytes + 16) + 1024;
}

// X(name, strips, slot bytes, slots, widths...). The sum of widths / 2 + 32 over an
// instance is bounded: above about 316 the compiler serialises wgmma (C7512).
#define TETRAD_SM90_INSTANCES(X)          \
  X(mixed, 1, 43008, 5, 64, 80, 96, 128)  \
  X(wide, 1, 52224, 4, 48, 80, 168, 0)    \
  X(even, 1, 37888, 6, 96, 104, 112, 0)   \
  X(prefill, 1, 37888, 6, 128, 256, 0, 0) \
  X(skewed, 1, 45056, 5, 24, 64, 128, 0)  \
  X(decode, 2, 43008, 5, 8, 0, 0, 0)

#define TETRAD_SM90_INSTANCE(name, strips, slot, slots, t0, t1, t2, t3) \
  Instance{#name, strips, slot, slots, {t0, t1, t2, t3}},
inline constexpr Instance kInstances[] = {TETRAD_SM90_INSTANCES(TETRAD_SM90_INSTANCE)};
#undef TETRAD_SM90_INSTANCE

}  // namespace tetrad::sm90
