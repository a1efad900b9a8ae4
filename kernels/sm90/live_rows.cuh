// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Live rows of activations whose M lies in device memory, for the prepare kernel.
//
// The counts are untrusted and may be rewritten meanwhile. Each CTA reads every value once,
// one a thread and a window of groups at a time, clamps it as cpu::ResolveDeviceM does, and
// sees from then on its own copy only; whatever two CTAs may have seen, each stays inside
// the capacity. Live rows are numbered, ascending, so that a warp finds its next one however
// many rows the groups leave out: with counts, the capacity of a group bounds all of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_m.cuh"
#include "kernels/sm90/prepare.h"

namespace tetrad::sm90 {

// Shared memory. What is added to a number wraps around.
struct LiveWindow {
  uint32_t end[kPrepareThreads];           // number after the group's last row
  uint32_t to_row[kPrepareThreads];        // from a number to the row of the stack
  uint32_t to_scale_row[kPrepareThreads];  // from a number to the row of the plane of scales
  uint32_t next;                           // the number after the window's last row
  uint32_t next_block;                     // kOffsets: row-blocks of all groups up to there
  int32_t next_group;                      // the first after the window
  uint32_t origin;  // kOffsets: the first row of all; its scales begin at 0 all the same
  uint32_t warp_sums[kPrepareThreads / 32];
};

// All threads.
__device__ inline void BeginLive(LiveWindow& window) {
  if (threadIdx.x == 0) {
    window.next_group = 0;
    window.next = 0;
    window.next_block = 0;
  }
  __syncthreads();
}

// The next window of groups; all threads.
__device__ inline void LoadWindow(const PrepareArguments& arguments, LiveWindow& window) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t group = window.next_group + thread;
  const bool offsets = arguments.m_source == MSource::kOffsets;
  const bool blocked = arguments.a_scale_layout == ScaleLayout::kBlocked;
  // Both are asked for before either is waited for.
  int32_t first = 0;
  if (offsets && group == 0) first = cuda::ReadOnce(arguments.m_values);
  int32_t value = 0;  // adds nothing, is never the largest
  if (group < arguments.group_count) {
    value = cuda::ReadOnce(arguments.m_values + group + (offsets ? 1 : 0));
  }
  const auto clamp = [&](int32_t row) {
    return static_cast<uint32_t>(cuda::ClampRow(row, arguments.capacity_rows));
  };
  if (group == 0) window.origin = clamp(first);
  __syncthreads();  // and the window before has been used
  const uint32_t before = window.next;
  const uint32_t blocks_before = window.next_block;
  // A group ends where its offset says, but not before the group before it: at the largest
  // of all offsets so far.
  const auto combine = [&](uint32_t x, uint32_t y) { return !offsets ? x + y : x < y ? y : x; };
  const uint32_t row_or_count = clamp(value);
  const uint32_t number = row_or_count < window.origin ? 0 : row_or_count - window.origin;
  const uint32_t end = combine(before, cuda::InclusiveScan(number, window.warp_sums, combine));
  window.end[thread] = end;
  __syncthreads();
  const uint32_t begin = thread == 0 ? before : window.end[thread - 1];
  const uint32_t row =
      offsets ? window.origin + begin : group * static_cast<uint32_t>(arguments.capacity_rows);
  uint32_t scale_row = offsets ? begin : row;
  if (blocked) {
    // Groups begin at whole row-blocks.
    const int64_t rows = offsets ? end - begin : arguments.capacity_rows;
    const auto blocks = static_cast<uint32_t>((rows + kScaleTileRows - 1) / kScaleTileRows);
    uint32_t block = group * blocks;
    if (offsets) {
      const auto sum = [](uint32_t x, uint32_t y) { return x + y; };
      const uint32_t up_to = cuda::InclusiveScan(blocks, window.warp_sums, sum);
      block = blocks_before + up_to - blocks;
      if (thread == kPrepareThreads - 1) window.next_block = blocks_before + up_to;
    }
    scale_row = block * kScaleTileRows;
  }
  window.to_row[thread] = row - begin;
  window.to_scale_row[thread] = scale_row - begin;
  if (thread == kPrepareThreads - 1) {
    window.next = end;
    window.next_group = group + 1;
  }
  __syncthreads();
}

// The group, counted from the window's first, of row `number`, which is one of the window's;
// all threads of the warp. Ends ascend: it is the one behind all groups that end before.
__device__ inline int GroupInWindow(const LiveWindow& window, uint32_t number) {
  const volatile uint32_t* const ends = window.end;  // no registers for them from row to row
  int group = 0;
#pragma unroll
  for (int i = 0; i < kPrepareThreads; i += 32) {
    group += __popc(__ballot_sync(0xFFFFFFFFu, ends[i + threadIdx.x % 32] <= number));
  }
  return group;
}

}  // namespace tetrad::sm90
