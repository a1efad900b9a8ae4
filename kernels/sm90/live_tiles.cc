// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/live_tiles.h"

#include <algorithm>
#include <limits>

#include "kernels/sm90/tiles.h"

namespace tetrad::sm90 {
namespace {

int32_t WidthsOf(const Instance& instance) {
  int32_t widths = 0;
  while (widths < kMaxWidths && instance.widths[widths] > 0) ++widths;
  return widths;
}

int64_t TileColumns(const Instance& instance, int32_t n) {
  return CeilDiv(n, int64_t{kBlockRows} * instance.strips);
}

int64_t TilesIn(uint32_t cover) {
  int64_t tiles = 0;
  for (; cover != 0; cover >>= 8) tiles += cover & 0xFF;
  return tiles;
}

// The spread is tried at sizes around the mean, in 16ths: with one alone, whether its last tiles
// happen to fit the multiprocessors would choose.
constexpr int64_t kUnit = 16;
constexpr int64_t kLeastSize = 12;
constexpr int64_t kMostSize = 20;

// Group `i` of a spread from half to one and a half times `size` 16ths of the mean, rounded.
int32_t SpreadRows(const LiveShape& shape, int64_t i, int64_t size) {
  const int64_t mean = CeilDiv(shape.capacity_rows, shape.groups);
  // The first group has half the mean, each next one a gap more.
  const int64_t gaps = std::max<int64_t>(shape.groups - 1, 1);
  const int64_t in_spread = shape.groups == 1 ? 2 * gaps : gaps + 2 * i;
  const int64_t rows = (mean * size * in_spread + gaps * kUnit) / (2 * gaps * kUnit);
  return static_cast<int32_t>(std::min(rows, shape.capacity_rows));
}

// Of the CTA that takes longest, when the tiles of that spread are dealt as live_tiles.cuh does.
int64_t LongestCycles(const Instance& instance, const std::vector<uint32_t>& covers,
                      const LiveShape& shape, int64_t size, int32_t ctas) {
  const int32_t widths = WidthsOf(instance);
  const int32_t widest = instance.widths[widths - 1];
  const auto steps = static_cast<int32_t>(CeilDiv(shape.k, kBlockK));
  int64_t tiles[kMaxWidths] = {};
  for (int64_t group = 0; group < shape.groups; ++group) {
    const int32_t rows = SpreadRows(shape, group, size);
    const int32_t whole = WholeTiles(rows, widest);
    const uint32_t cover = covers[static_cast<size_t>(rows - whole * widest)];
    for (int32_t w = 0; w < widths; ++w) tiles[w] += cover >> (8 * w) & 0xFF;
    tiles[widths - 1] += whole;
  }
  int64_t longest = 0;
  for (int64_t cta = 0; cta < ctas; ++cta) {
    const auto before = [&](int64_t tile) { return (tile + ctas - 1 - cta) / ctas; };
    int64_t begin = 0, cycles = 0;
    for (int32_t w = widths - 1; w >= 0; --w) {
      const int64_t end = begin + tiles[w] * TileColumns(instance, shape.n);
      cycles += (before(end) - before(begin)) * TileCycles(instance, instance.widths[w], steps);
      begin = end;
    }
    longest = std::max(longest, cycles);
  }
  return longest;
}

// Row tiles of all groups. With s the most by which a row more can lengthen a cover on
// average, (tiles - 1) / (rows - 1), a group of r rows has at most 1 + s (r - 1) tiles, and h
// groups that are not empty h + s (capacity - h) together; s is at most 1, since no tile is
// empty, so most groups are the worst. Beyond the table a cover gets one tile longer with
// each `widest` rows: s is at least 1 / widest.
int64_t MostRowTilesOfOffsets(const std::vector<uint32_t>& covers, int32_t widest,
                              const LiveShape& shape) {
  int64_t more = 1, rows_more = widest;  // s
  for (int32_t rows = 2; rows <= kCoverRows; ++rows) {
    const int64_t tiles = TilesIn(covers[static_cast<size_t>(rows)]) - 1;
    if (tiles * rows_more > more * (rows - 1)) {
      more = tiles;
      rows_more = rows - 1;
    }
  }
  const int64_t live = std::min<int64_t>(shape.groups, shape.capacity_rows);
  return live + (shape.capacity_rows - live) * more / rows_more;
}

// Every group may have the capacity. One of more rows than the table has is left with
// kCoverRows - widest + 1 to kCoverRows of them.
int64_t MostRowTilesOfCounts(const std::vector<uint32_t>& covers, int32_t widest,
                             const LiveShape& shape) {
  const auto most_of = [&](int64_t least, int64_t most) {
    int64_t tiles = 0;
    for (int64_t rows = least; rows <= most; ++rows) {
      tiles = std::max(tiles, TilesIn(covers[static_cast<size_t>(rows)]));
    }
    return tiles;
  };
  int64_t most = most_of(0, std::min<int64_t>(shape.capacity_rows, kCoverRows));
  if (shape.capacity_rows > kCoverRows) {
    const auto capacity = static_cast<int32_t>(
        std::min<int64_t>(shape.capacity_rows, std::numeric_limits<int32_t>::max()));
    most =
        std::max(most, WholeTiles(capacity, widest) + most_of(kCoverRows - widest + 1, kCoverRows));
  }
  return shape.groups * most;
}

}  // namespace

// The cheapest cover of r rows is that of r - width and a tile more, for some width. Of equally
// cheap ones that with more of the widest is taken, then of the next: the greater word.
std::vector<uint32_t> CoverTable(const Instance& instance, int32_t k) {
  const auto steps = static_cast<int32_t>(CeilDiv(k, kBlockK));
  std::vector<uint32_t> covers(kCoverRows + 1);
  std::vector<int64_t> cycles(kCoverRows + 1);
  for (int32_t rows = 1; rows <= kCoverRows; ++rows) {
    const auto at = static_cast<size_t>(rows);
    for (int32_t w = 0; w < WidthsOf(instance); ++w) {
      const int32_t width = instance.widths[w];
      const auto rest = static_cast<size_t>(std::max(0, rows - width));
      const int64_t longer = cycles[rest] + TileCycles(instance, width, steps);
      const uint32_t cover = covers[rest] + (1u << (8 * w));
      if (w == 0 || longer < cycles[at] || (longer == cycles[at] && cover > covers[at])) {
        cycles[at] = longer;
        covers[at] = cover;
      }
    }
  }
  return covers;
}

const Instance& ChooseLiveInstance(const LiveShape& shape, int32_t multiprocessors) {
  const Instance* best = nullptr;
  int64_t least = 0;
  for (const Instance& instance : kInstances) {
    const std::vector<uint32_t> covers = CoverTable(instance, shape.k);
    int64_t cycles = 0;
    for (int64_t size = kLeastSize; size <= kMostSize; ++size) {
      cycles += LongestCycles(instance, covers, shape, size, multiprocessors);
    }
    if (best == nullptr || cycles < least) {
      best = &instance;
      least = cycles;
    }
  }
  return *best;
}

int64_t MostTilesPerCta(const Instance& instance, const LiveShape& shape, int32_t ctas) {
  const std::vector<uint32_t> covers = CoverTable(instance, shape.k);
  const int32_t widest = instance.widths[WidthsOf(instance) - 1];
  const int64_t row_tiles = shape.m_source == MSource::kCounts
                                ? MostRowTilesOfCounts(covers, widest, shape)
                                : MostRowTilesOfOffsets(covers, widest, shape);
  return CeilDiv(row_tiles * TileColumns(instance, shape.n), ctas) + 1;
}

}  // namespace tetrad::sm90
