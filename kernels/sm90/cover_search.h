// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CoverSearch: the cheapest ways to cover a number of rows with tiles of an instance's widths;
// and which groups share them. Pure functions of shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/problem.h"
#include "kernels/sm90/instances.h"
#include "kernels/sm90/tiles.h"

namespace tetrad::sm90 {

inline constexpr int32_t kCovers = 6;          // of a group that are tried
inline constexpr int32_t kSearchedRows = 512;  // of a group; the rest is of one width

inline constexpr int32_t kMaxStrips = 2;
static_assert(std::ranges::all_of(kInstances,
                                  [](const Instance& i) { return i.strips <= kMaxStrips; }));

// Columns of tiles.
inline int64_t TileColumns(int32_t n, int32_t strips) {
  return CeilDiv(n, int64_t{kBlockRows} * strips);
}

// Groups of as many rows and steps: their covers are the same, so they are found once.
struct Kind {
  int32_t m = 0;
  int32_t steps = 0;
  int64_t columns[kMaxStrips] = {};  // of tiles of so many strips, over its groups
};

struct Kinds {
  // By sorting: a client chooses the groups, and could those that collide in a hash table.
  explicit Kinds(std::span<const TileGroup> groups) : of_group(groups.size()) {
    std::vector<std::pair<uint64_t, int32_t>> order;
    order.reserve(groups.size());
    for (const TileGroup& group : groups) {
      const auto steps = static_cast<uint64_t>(CeilDiv(group.k, kBlockK));
      order.emplace_back(uint64_t{static_cast<uint32_t>(group.m)} << 32 | steps, order.size());
    }
    std::ranges::sort(order);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, group] = order[i];
      if (i == 0 || key != order[i - 1].first) {
        all.push_back({.m = static_cast<int32_t>(key >> 32), .steps = static_cast<int32_t>(key)});
      }
      of_group[group] = static_cast<int32_t>(all.size() - 1);
      for (int32_t strips = 1; strips <= kMaxStrips; ++strips) {
        all.back().columns[strips - 1] += TileColumns(groups[group].n, strips);
      }
    }
  }

  std::vector<Kind> all;
  std::vector<int32_t> of_group;
};

// Tiles that cover a group's rows: how many of each width.
struct Cover {
  int32_t counts[kMaxWidths] = {};
  int64_t cycles = 0;  // of one column of tiles
};

// The cheapest covers of a number of rows, best first.
class CoverSearch {
 public:
  CoverSearch(const Instance& instance, int32_t steps) : instance_(instance) {
    for (; widths_ < kMaxWidths && instance.widths[widths_] > 0; ++widths_) {
      cycles_[widths_] = TileCycles(instance, instance.widths[widths_], steps);
    }
  }

  // At most `most` of them, up to kCovers; valid until the next call.
  std::span<const Cover> Find(int32_t rows, int32_t most) {
    most_ = most;
    found_ = 0;
    Cover cover;
    const int32_t widest = widths_ - 1;
    const int32_t whole = std::max(0, rows - kSearchedRows) / instance_.widths[widest];
    Add(cover, widest, whole);
    Extend(cover, widest, rows - whole * instance_.widths[widest]);
    return std::span(covers_).first(found_);
  }

  int64_t cycles(int32_t which) const { return cycles_[which]; }

 private:
  // The fewest that a row can take: they fall with the width (TileCycles).
  double LeastPerRow() const {
    return static_cast<double>(cycles_[widths_ - 1]) / instance_.widths[widths_ - 1];
  }
  void Add(Cover& cover, int32_t which, int32_t count) const {
    cover.counts[which] += count;
    cover.cycles += count * cycles_[which];
  }

  void Keep(const Cover& cover) {
    auto* const end = covers_ + found_;
    auto* const at =
        std::upper_bound(covers_, end, cover.cycles,
                         [](int64_t cycles, const Cover& c) { return cycles < c.cycles; });
    if (found_ < most_) {
      ++found_;
    } else if (at == end) {
      return;
    }
    std::copy_backward(at, covers_ + found_ - 1, covers_ + found_);
    *at = cover;
  }

  // Covers `rows` more with the widths up to `which`, so that no tile is empty.
  void Extend(const Cover& cover, int32_t which, int32_t rows) {
    if (rows <= 0) return Keep(cover);
    const double least = static_cast<double>(cover.cycles) + rows * LeastPerRow();
    if (found_ == most_ && least >= static_cast<double>(covers_[found_ - 1].cycles)) return;
    const int32_t width = instance_.widths[which];
    const auto most = static_cast<int32_t>(CeilDiv(rows, width));
    for (int32_t count = most; count >= (which == 0 ? most : 0); --count) {
      Cover longer = cover;
      Add(longer, which, count);
      Extend(longer, which - 1, rows - count * width);
    }
  }

  const Instance& instance_;
  int32_t widths_ = 0;
  int64_t cycles_[kMaxWidths] = {};
  int32_t most_ = 0;
  int32_t found_ = 0;
  Cover covers_[kCovers];
};

}  // namespace tetrad::sm90
