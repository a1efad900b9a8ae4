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

int64_t ColumnsOf(const Instance& instance, int32_t n) {
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

// A spread of groups from half to one and a half times `size` 16ths of the mean, rounded: the first
// has half, each next one a gap more.
class Spread {
 public:
  Spread(const LiveShape& shape, int64_t size)
      : rows_(CeilDiv(shape.capacity_rows, shape.groups) * size),
        gaps_(std::max<int64_t>(shape.groups - 1, 1)),
        first_(shape.groups == 1 ? 2 * gaps_ : gaps_),
        groups_(shape.groups),
        capacity_(shape.capacity_rows) {}

  // Rows of group `i`.
  int64_t Rows(int64_t i) const { return std::min(Uncapped(i), capacity_); }

  // The first group with more rows than `i`, or the number of groups.
  int64_t Next(int64_t i) const {
    const int64_t rows = Uncapped(i);
    if (rows_ == 0 || rows >= capacity_) return groups_;
    const int64_t in_spread = CeilDiv(gaps_ * kUnit * (2 * rows + 1), rows_);
    return std::min(groups_, CeilDiv(in_spread - first_, int64_t{2}));
  }

 private:
  int64_t Uncapped(int64_t i) const {
    return (rows_ * (first_ + 2 * i) + gaps_ * kUnit) / (2 * gaps_ * kUnit);
  }

  int64_t rows_;  // of a mean group, in 16ths
  int64_t gaps_;
  int64_t first_;  // of a mean group's rows, in halves of a gap
  int64_t groups_;
  int64_t capacity_;
};

struct Candidate {
  const Instance* instance = nullptr;
  std::vector<uint32_t> covers;
  int64_t tiles[kMaxWidths] = {};  // row tiles of the spread
  int64_t cycles = 0;              // over all sizes of it

  void Add(int64_t rows, int64_t groups) {
    const int32_t widths = WidthsOf(*instance);
    const int32_t widest = instance->widths[widths - 1];
    const int32_t whole = WholeTiles(static_cast<int32_t>(rows), widest);
    const uint32_t cover = covers[static_cast<size_t>(rows - int64_t{whole} * widest)];
    for (int32_t w = 0; w < widths; ++w) tiles[w] += groups * (cover >> (8 * w) & 0xFF);
    tiles[widths - 1] += groups * whole;
  }
};

// Of the CTA that takes longest, when row tiles are dealt as live_tiles.cuh does.
int64_t LongestCycles(const Instance& instance, const int64_t (&tiles)[kMaxWidths],
                      const LiveShape& shape, int32_t ctas) {
  const int32_t widths = WidthsOf(instance);
  const auto steps = static_cast<int32_t>(CeilDiv(shape.k, kBlockK));
  int64_t longest = 0;
  for (int64_t cta = 0; cta < ctas; ++cta) {
    const auto before = [&](int64_t tile) { return (tile + ctas - 1 - cta) / ctas; };
    int64_t begin = 0, cycles = 0;
    for (int32_t w = widths - 1; w >= 0; --w) {
      const int64_t end = begin + tiles[w] * ColumnsOf(instance, shape.n);
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
  std::vector<Candidate> candidates;
  for (const Instance& instance : kInstances) {
    candidates.push_back({.instance = &instance, .covers = CoverTable(instance, shape.k)});
  }
  for (int64_t size = kLeastSize; size <= kMostSize; ++size) {
    for (Candidate& candidate : candidates) std::ranges::fill(candidate.tiles, 0);
    const Spread spread(shape, size);
    for (int64_t group = 0, next = 0; group < shape.groups; group = next) {
      next = spread.Next(group);
      for (Candidate& candidate : candidates) candidate.Add(spread.Rows(group), next - group);
    }
    for (Candidate& candidate : candidates) {
      candidate.cycles +=
          LongestCycles(*candidate.instance, candidate.tiles, shape, multiprocessors);
    }
  }
  return *std::ranges::min_element(candidates, {}, &Candidate::cycles)->instance;
}

int64_t MostTilesPerCta(const Instance& instance, const LiveShape& shape, int32_t ctas) {
  const std::vector<uint32_t> covers = CoverTable(instance, shape.k);
  const int32_t widest = instance.widths[WidthsOf(instance) - 1];
  const int64_t row_tiles = shape.m_source == MSource::kCounts
                                ? MostRowTilesOfCounts(covers, widest, shape)
                                : MostRowTilesOfOffsets(covers, widest, shape);
  return CeilDiv(row_tiles * ColumnsOf(instance, shape.n), ctas) + 1;
}

}  // namespace tetrad::sm90
