// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tiles of a launch whose M lies in device memory.
//
// The counts are untrusted and may be rewritten while a launch reads them. Each
// CTA reads every value once, clamps it as cpu::ResolveDeviceM does, and sees
// from then on its own copy only; whatever two CTAs may have seen, each stays
// inside the capacity. Values are read a window of groups at a time, one a
// thread. Tile t of the launch (groups ascending, in a group rows fastest, so
// that the weights of a column are read by neighbours) belongs to CTA t mod
// grid; a CTA's tiles ascend, so it walks the windows once.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/problem.h"

namespace tetrad::cuda {

inline constexpr int kWindowGroups = kPortableThreads;

// Shared memory. Row tiles are 128 rows, which are the row-blocks of blocked
// scales: one prefix sum serves both.
struct GroupWalk {
  int64_t row_tiles_end[kWindowGroups];  // of all groups up to this one
  int32_t first_row[kWindowGroups];      // kOffsets: in the stack
  int32_t m[kWindowGroups];
  int64_t window_row_tiles;  // of all groups before the window
  int64_t end_row_tiles;     // of all groups up to the window's last
  int32_t origin;            // kOffsets: the first group's row; its scales begin at 0 all the same
  int32_t end_row;           // kOffsets: where the window's last group ends
  int32_t window_group;      // the window's first
  int32_t next_group;        // the first after the window
  int64_t warp_sums[kPortableThreads / 32];
};
static_assert(kPortableTileRows == kScaleTileRows);

// The combination of `value` of this and all lower threads of the CTA.
template <class T, class Combine>
__device__ inline T InclusiveScan(T value, T* warp_sums, Combine combine) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T lower = __shfl_up_sync(0xFFFFFFFFu, value, distance);
    if (lane >= distance) value = combine(lower, value);
  }
  __syncthreads();  // the sums of the scan before have been read
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  for (int lower = 0; lower < warp; ++lower) value = combine(warp_sums[lower], value);
  return value;
}

__device__ inline int32_t ReadOnce(const int32_t* value) {
  return *static_cast<const volatile int32_t*>(value);
}

// A stack has at most 2^31 - 1 rows: what exceeds that no int32 can name.
__device__ inline int64_t ClampRow(int64_t value, int64_t capacity) {
  return value < 0 ? 0 : value < capacity ? value : capacity;
}

// All threads.
__device__ inline void BeginWalk(const LaunchArguments& arguments, GroupWalk& walk) {
  if (threadIdx.x != 0) return;
  walk.window_row_tiles = 0;
  walk.end_row_tiles = 0;
  walk.origin = 0;
  walk.end_row = 0;
  walk.window_group = 0;
  walk.next_group = 0;
  if (arguments.m_source != MSource::kOffsets) return;
  const int64_t first = ReadOnce(arguments.m_values);
  uint32_t errors = first != 0 ? kErrorOffsetsNotMonotone : 0;
  if (first < 0 || first > arguments.capacity_rows) errors |= kErrorCountOutOfRange;
  if (errors != 0) atomicOr(&arguments.state->error_word, errors);
  walk.origin = static_cast<int32_t>(ClampRow(first, arguments.capacity_rows));
  walk.end_row = walk.origin;
}

// All threads; the walk is complete for all when it returns.
__device__ inline void NextWindow(const LaunchArguments& arguments, GroupWalk& walk) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  const int64_t row_tiles_before = walk.end_row_tiles;
  const int64_t row_before_window = walk.end_row;
  const int64_t group = int64_t{walk.next_group} + thread;
  const bool live = group < arguments.group_count;
  const bool offsets = arguments.m_source == MSource::kOffsets;
  const int64_t capacity = arguments.capacity_rows;
  const int64_t value = live ? ReadOnce(arguments.m_values + group + (offsets ? 1 : 0)) : 0;
  uint32_t errors = live && (value < 0 || value > capacity) ? kErrorCountOutOfRange : 0;
  int64_t m = live ? ClampRow(value, capacity) : 0;
  int64_t first_row = 0;
  if (offsets) {
    // A group ends where its offset says, but not before the group before it:
    // at the largest of all offsets so far. A group that is none adds 0.
    const auto larger = [](int64_t x, int64_t y) { return x < y ? y : x; };
    const int64_t end = larger(row_before_window, InclusiveScan(m, walk.warp_sums, larger));
    walk.first_row[thread] = static_cast<int32_t>(end);  // as seen by the next thread
    __syncthreads();
    first_row = thread == 0 ? row_before_window : walk.first_row[thread - 1];
    if (live && value < first_row) errors |= kErrorOffsetsNotMonotone;
    m = end - first_row;
  }
  const auto sum = [](int64_t x, int64_t y) { return x + y; };
  const int64_t row_tiles_end =
      row_tiles_before +
      InclusiveScan((m + kPortableTileRows - 1) / kPortableTileRows, walk.warp_sums, sum);
  // The scan's barriers stand between the reads above and these writes.
  walk.row_tiles_end[thread] = row_tiles_end;
  walk.first_row[thread] = static_cast<int32_t>(first_row);
  walk.m[thread] = static_cast<int32_t>(m);
  if (thread == kWindowGroups - 1) {
    walk.window_row_tiles = row_tiles_before;
    walk.end_row_tiles = row_tiles_end;
    walk.end_row = static_cast<int32_t>(first_row + m);
    walk.window_group = static_cast<int32_t>(group - thread);
    walk.next_group = static_cast<int32_t>(group + 1);
  }
  if (errors != 0) atomicOr(&arguments.state->error_word, errors);
  __syncthreads();
}

// What cpu::ResolveDeviceM makes of one group, as offsets.
__device__ inline GroupEntry FormGroupEntry(const LaunchArguments& arguments, const GroupWalk& walk,
                                            int thread) {
  const ProblemTypes& types = arguments.types;
  const int64_t group = int64_t{walk.window_group} + thread;
  const int64_t n = arguments.n;
  const int64_t k = arguments.k;
  const bool counts = arguments.m_source == MSource::kCounts;
  const int64_t row = counts ? group * arguments.capacity_rows : walk.first_row[thread];
  int64_t scale_row = row - walk.origin;
  if (types.a_scale_layout == ScaleLayout::kBlocked) {
    scale_row = counts ? group * RoundUp(arguments.capacity_rows, kScaleTileRows)
                       : kScaleTileRows *
                             (thread == 0 ? walk.window_row_tiles : walk.row_tiles_end[thread - 1]);
  }
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  GroupEntry entry;
  entry.a = ActivationBytes(types.a_type, row, k);
  if (types.a_type == ActivationType::kNvfp4) {
    entry.a_scales = ScalePlaneBytes(types.a_scale_layout, scale_row, k);
  }
  entry.b = group * CodeBytes(n, k);
  entry.b_scales = group * ScalePlaneBytes(types.b_scale_layout, n, k);
  entry.c = (row_major ? row * arguments.c_stride : row) * OutputElementBytes(types.c_type);
  entry.row = row;
  entry.c_stride = arguments.c_stride;
  entry.m = walk.m[thread];
  entry.n = arguments.n;
  entry.k = arguments.k;
  return entry;
}

// Finds tile `number` of the launch, which must not fall from call to call; all
// threads, with the same number. The thread whose group has it calls
// use(entry, tile), the others nothing; a barrier must follow before the next
// call. False if the launch has fewer tiles, after all values have been read.
template <class Use>
__device__ inline bool FindTile(const LaunchArguments& arguments, GroupWalk& walk, int64_t number,
                                Use use) {
  const int64_t column_tiles =
      (int64_t{arguments.n} + kPortableTileColumns - 1) / kPortableTileColumns;
  while (number >= walk.end_row_tiles * column_tiles) {
    if (walk.next_group >= arguments.group_count) return false;
    NextWindow(arguments, walk);
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = thread == 0 ? walk.window_row_tiles : walk.row_tiles_end[thread - 1];
  const int64_t row_tiles = walk.row_tiles_end[thread] - begin;
  const int64_t in_group = number - begin * column_tiles;
  if (in_group < 0 || in_group >= row_tiles * column_tiles) return true;
  const GroupEntry entry = FormGroupEntry(arguments, walk, thread);
  Tile tile;
  tile.group = walk.window_group + thread;
  tile.row = static_cast<int32_t>(in_group % row_tiles * kPortableTileRows);
  tile.rows = min(kPortableTileRows, entry.m - tile.row);
  tile.column = static_cast<int32_t>(in_group / row_tiles * kPortableTileColumns);
  tile.columns = min(kPortableTileColumns, entry.n - tile.column);
  use(entry, tile);
  return true;
}

}  // namespace tetrad::cuda
