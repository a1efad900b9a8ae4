// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device-side M: a CTA's list of tiles from the live counts.
//
// The counts are untrusted and may be rewritten while a launch reads them. A CTA reads every
// value once, clamps it as cpu::ResolveDeviceM does, and sees from then on its own copy only.
// What another CTA saw does not matter: each list stays inside the capacity and is no longer
// than MostTilesPerCta() says, so at worst tiles are missing or computed twice.
//
// Tiles are numbered: all of the widest width, groups ascending, in a group strip by strip, in
// a strip row by row; then those of the next width. Numbers fit 32 bits, since lists have an
// entry of 48 bytes for every tile there can be. Tile t belongs to CTA t mod grid. This runs
// before the first copy of a launch, so the steps are few:
//
//   one thread a group         value -> rows and cover -> tiles of each width; scan in the warp
//   barrier
//   a warp a width and warp    number of each group's first tile -> those that are this CTA's
//     of groups
//
// More groups than threads take windows: all are counted first, then each writes its tiles.
// Of more than fit shared memory (some 50,000) the first so many get their tiles, of all
// widths, before the others do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_m.cuh"
#include "kernels/problem.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/live_tiles.h"

namespace tetrad::sm90 {

// Shared memory. I: kThreads, kStrips, kWidths and Width(i) of the instance; kKept: groups whose
// rows are kept, a multiple of the threads.
template <class I, int kKept>
struct LiveScratch {
  static constexpr int kWarps = I::kThreads / 32;
  uint32_t covers[kCoverRows + 1];
  int32_t warp_ends[kWarps];  // kOffsets: the largest of a warp's groups
  uint32_t warp_tiles[I::kWidths][kWarps];
  // Of a group of the window: tiles of one strip, and those of the groups before in its warp.
  uint32_t tiles[I::kWidths][I::kThreads];
  uint32_t tiles_before[I::kWidths][I::kThreads];
  int32_t first_row[I::kThreads];
  int32_t rows[I::kThreads];
  int32_t kept[kKept];  // kCounts: rows of a group; kOffsets: where it ends
};
// Of so many bytes of shared memory.
template <class I>
constexpr int KeptGroups(int bytes) {
  using Least = LiveScratch<I, I::kThreads>;
  return (bytes - static_cast<int>(offsetof(Least, kept))) / 4 / I::kThreads * I::kThreads;
}

template <class I, int kKept>
class ListFormer {
 public:
  using Scratch = LiveScratch<I, kKept>;
  static_assert(kKept > 0 && kKept % I::kThreads == 0);

  __device__ __forceinline__ ListFormer(const LiveM& live, const ProblemTypes& types,
                                        int32_t tiles_per_cta, Scratch& scratch, int thread)
      : live_(live),
        types_(types),
        scratch_(scratch),
        list_(live.lists + int64_t{blockIdx.x} * tiles_per_cta),
        most_(static_cast<uint32_t>(tiles_per_cta) - 1),
        columns_((static_cast<uint32_t>(live.n) + kStripRows - 1) / kStripRows),
        thread_(thread),
        warp_(thread / 32),
        lane_(thread % 32) {}

  // All threads, when the grid before has ended. The list, and the scratch for other use, are
  // there after a barrier.
  __device__ __forceinline__ void Form(uint32_t* error_word) {
    // The table and the counts are on their way together.
    constexpr int kLoads = (kCoverRows + I::kThreads) / I::kThreads;
    uint32_t covers[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int rows = thread_ + i * I::kThreads;
      covers[i] = rows <= kCoverRows ? __ldg(live_.covers + rows) : 0;
    }
    int32_t value = Read(0);
    if (Offsets() && thread_ == 0) row_ = ReadOrigin();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int rows = thread_ + i * I::kThreads;
      if (rows <= kCoverRows) scratch_.covers[rows] = covers[i];
    }
    for (int32_t begin = 0; begin < live_.group_count; begin += kKept) {
      const int32_t groups = min(kKept, live_.group_count - begin);
      const int32_t row = row_;
      uint32_t totals[I::kWidths] = {};
      for (int32_t window = 0; window < groups; window += I::kThreads) {
        if (begin + window > 0) value = Read(begin + window);
        Clamp(begin, window, groups, value);
        CountTiles(LiveWarps(groups - window));
        AddWindow(LiveWarps(groups - window), totals);
      }
      uint32_t before[I::kWidths] = {};
      for (int32_t window = 0; window < groups; window += I::kThreads) {
        const int warps = LiveWarps(groups - window);
        if (groups > I::kThreads) {
          Recall(begin, window, groups, row);
          __syncthreads();  // the window before has been written
          CountTiles(warps);
        }
        WriteTiles(begin + window, warps, totals, before);
        if (window + I::kThreads < groups) AddWindow(warps, before);
      }
#pragma unroll
      for (int w = 0; w < I::kWidths; ++w) next_tile_ += totals[w] * columns_;
    }
    if (thread_ == 0) {
      const uint32_t tiles = (next_tile_ + (gridDim.x - 1 - blockIdx.x)) / gridDim.x;
      list_[min(tiles, most_)] = TileEntry{};
    }
    if (errors_ != 0) atomicOr(error_word, errors_);
  }

 private:
  static constexpr uint32_t kStripRows = kBlockRows * I::kStrips;
  static constexpr int kWidest = I::Width(I::kWidths - 1);
  static constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

  __device__ __forceinline__ bool Offsets() const { return live_.m_source == MSource::kOffsets; }

  // Warps that have groups when so many are left.
  __device__ __forceinline__ static int LiveWarps(int32_t groups) {
    return (min(groups, I::kThreads) + 31) / 32;
  }

  __device__ __forceinline__ int32_t Read(int32_t window) const {
    const int64_t group = int64_t{window} + thread_;
    if (group >= live_.group_count) return 0;
    return cuda::ReadOnce(live_.m_values + group + (Offsets() ? 1 : 0));
  }

  __device__ __forceinline__ int32_t ReadOrigin() {
    const int32_t value = cuda::ReadOnce(live_.m_values);
    if (value != 0) errors_ |= kErrorOffsetsNotMonotone;
    if (value < 0 || value > live_.capacity_rows) errors_ |= kErrorCountOutOfRange;
    return static_cast<int32_t>(cuda::ClampRow(value, live_.capacity_rows));
  }

  // kCounts: where the thread's group begins.
  __device__ __forceinline__ int32_t CountsRow(int32_t window) const {
    return static_cast<int32_t>((int64_t{window} + thread_) * live_.capacity_rows);
  }

  // The thread's group: where it begins, how many rows it has. Of a thread without one: none.
  __device__ __forceinline__ void Clamp(int32_t begin, int32_t window, int32_t groups,
                                        int32_t value) {
    const bool live = thread_ < groups - window;
    if (live && (value < 0 || value > live_.capacity_rows)) errors_ |= kErrorCountOutOfRange;
    rows_ = live ? static_cast<int32_t>(cuda::ClampRow(value, live_.capacity_rows)) : 0;
    if (!Offsets()) {
      first_row_ = CountsRow(begin + window);
      if (live) scratch_.kept[window + thread_] = rows_;
      __syncthreads();  // the table is there; the window before has been read
      return;
    }
    // A group ends where its offset says, but not before the group before it: at the largest
    // of all offsets so far.
    int32_t end = thread_ == 0 ? max(row_, rows_) : rows_;
    int32_t lower = 0;
    const int warps = LiveWarps(groups - window);
    if (warp_ < warps) {
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const auto other = static_cast<int32_t>(__shfl_up_sync(kAllLanes, end, distance));
        if (lane_ >= distance) end = max(end, other);
      }
      lower = static_cast<int32_t>(__shfl_up_sync(kAllLanes, end, 1));
      if (lane_ == 0) lower = 0;
      if (lane_ == 31) scratch_.warp_ends[warp_] = end;
    }
    __syncthreads();  // as above
#pragma unroll 4
    for (int i = 0; i < warps; ++i) {
      if (i == warp_) lower = max(lower, row_);
      row_ = max(row_, scratch_.warp_ends[i]);
    }
    if (!live) return;
    first_row_ = lower;
    if (value < lower) errors_ |= kErrorOffsetsNotMonotone;
    const int32_t group_end = max(lower, rows_);
    rows_ = group_end - lower;
    scratch_.kept[window + thread_] = group_end;
  }

  // The same from what was kept; `row` is where the first of the groups kept begins.
  __device__ __forceinline__ void Recall(int32_t begin, int32_t window, int32_t groups,
                                         int32_t row) {
    const int32_t at = window + thread_;
    rows_ = at < groups ? scratch_.kept[at] : 0;
    first_row_ = CountsRow(begin + window);
    if (!Offsets() || at >= groups) return;
    first_row_ = at == 0 ? row : scratch_.kept[at - 1];
    rows_ -= first_row_;
  }

  // Tiles of the thread's group; those of all are there when it returns.
  __device__ __forceinline__ void CountTiles(int warps) {
    if (warp_ < warps) {
      const int32_t whole = WholeTiles(rows_, kWidest);
      const uint32_t cover = scratch_.covers[rows_ - whole * kWidest];
      uint32_t tiles[I::kWidths], sums[I::kWidths];
#pragma unroll
      for (int w = 0; w < I::kWidths; ++w) {
        tiles[w] = cover >> (8 * w) & 0xFF;
        if (w == I::kWidths - 1) tiles[w] += static_cast<uint32_t>(whole);
        sums[w] = tiles[w];
      }
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
        for (int w = 0; w < I::kWidths; ++w) {
          const auto other = static_cast<uint32_t>(__shfl_up_sync(kAllLanes, sums[w], distance));
          if (lane_ >= distance) sums[w] += other;
        }
      }
#pragma unroll
      for (int w = 0; w < I::kWidths; ++w) {
        scratch_.tiles[w][thread_] = tiles[w];
        scratch_.tiles_before[w][thread_] = sums[w] - tiles[w];
        if (lane_ == 31) scratch_.warp_tiles[w][warp_] = sums[w];
      }
      scratch_.first_row[thread_] = first_row_;
      scratch_.rows[thread_] = rows_;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void AddWindow(int warps, uint32_t (&sums)[I::kWidths]) const {
#pragma unroll 4
    for (int i = 0; i < warps; ++i) {
#pragma unroll
      for (int w = 0; w < I::kWidths; ++w) sums[w] += scratch_.warp_tiles[w][i];
    }
  }

  // This CTA's tiles of a window's groups. `totals`: of one strip of all groups kept; `before`: of
  // those before the window.
  __device__ __forceinline__ void WriteTiles(int32_t window, int warps,
                                             const uint32_t (&totals)[I::kWidths],
                                             const uint32_t (&before)[I::kWidths]) const {
    const uint32_t ctas = gridDim.x;
    const uint32_t cta = blockIdx.x;
    for (int unit = warp_; unit < I::kWidths * warps; unit += Scratch::kWarps) {
      const int which = unit % I::kWidths;
      const int of_warp = unit / I::kWidths;
      const int at = of_warp * 32 + lane_;
      const uint32_t tiles = scratch_.tiles[which][at];
      uint32_t number = scratch_.tiles_before[which][at];
#pragma unroll 4
      for (int i = 0; i < of_warp; ++i) number += scratch_.warp_tiles[which][i];
      int32_t width = 0, wider_rows = 0;
#pragma unroll
      for (int w = 0; w < I::kWidths; ++w) {
        if (w == which) {
          width = I::Width(w);
          number += before[w];
        } else if (w > which) {
          number += totals[w];
          wider_rows += static_cast<int32_t>(scratch_.tiles[w][at]) * I::Width(w);
        }
      }
      if (tiles == 0) continue;
      const uint32_t first = next_tile_ + number * columns_;
      // The place in the list of the first tile from there on that is this CTA's.
      uint32_t place = first / ctas;
      if (first - place * ctas > cta) ++place;
      uint32_t in_group = place * ctas + cta - first;
      // The bound of the place is never met: MostTilesPerCta().
      for (; in_group < tiles * columns_ && place < most_; in_group += ctas, ++place) {
        const uint32_t strip = in_group / tiles;
        const auto tile = static_cast<int32_t>(in_group - strip * tiles);
        list_[place] = Entry(window, at, strip, wider_rows + tile * width, which, width);
      }
    }
  }

  __device__ __forceinline__ TileEntry Entry(int32_t window, int at, uint32_t strip, int32_t row,
                                             int which, int32_t width) const {
    const auto steps = (static_cast<uint32_t>(live_.k) + kBlockK - 1) / kBlockK;
    const auto blocks = (static_cast<uint32_t>(live_.n) + kBlockRows - 1) / kBlockRows * steps;
    const auto column = static_cast<int32_t>(strip * kStripRows);
    const int32_t stack_row = scratch_.first_row[at] + row;
    const bool row_major = types_.c_layout == OutputLayout::kRowMajor;
    const int64_t element =
        row_major ? stack_row * live_.c_stride + column : column * live_.c_stride + stack_row;
    TileEntry tile;
    tile.group = window + at;
    tile.block = static_cast<uint32_t>(tile.group) * blocks + strip * I::kStrips * steps;
    tile.token = stack_row;
    tile.rows = min(width, scratch_.rows[at] - row);
    tile.columns = live_.n - column;
    tile.steps = static_cast<int32_t>(steps);
    tile.scale_row = stack_row;
    tile.width = which;
    tile.c = element * OutputElementBytes(types_.c_type);
    tile.c_stride = live_.c_stride;
    return tile;
  }

  const LiveM& live_;
  const ProblemTypes& types_;
  Scratch& scratch_;
  TileEntry* const list_;
  const uint32_t most_;     // tiles of the list
  const uint32_t columns_;  // strips
  const int thread_;
  const int warp_;
  const int lane_;
  uint32_t errors_ = 0;
  uint32_t next_tile_ = 0;  // number of the first tile of the groups kept
  // kOffsets: where the next window begins. At first thread 0 alone knows.
  int32_t row_ = 0;
  int32_t first_row_ = 0;  // of the thread's group
  int32_t rows_ = 0;
};

}  // namespace tetrad::sm90
