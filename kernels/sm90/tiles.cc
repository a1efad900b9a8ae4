// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/tiles.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/problem.h"

namespace tetrad::sm90 {
namespace {

// The model, in cycles, as measured on an H200 (docs/kernels-sm90.md). A K step of a
// strip takes what its instructions do or what the tensor cores do, whichever is more:
// 1.9 a token beside 258 for expanding the weights; 4.1 a token and 40 between the
// products of two steps.
constexpr double kExpandStep = 258;
constexpr double kExpandToken = 1.9;
constexpr double kProductStep = 40;
constexpr double kProductToken = 4.1;
// Two strips are a width of 8: 9216 bytes of weights a step at a multiprocessor's share
// of the memory's rate.
constexpr double kPairStep = 456;
// Once a tile: the pipeline's end and begin, and the store of each row.
constexpr double kTileFixed = 1000;
constexpr double kTileToken = 8;

constexpr int32_t kCovers = 6;           // of a group that are tried
constexpr int32_t kSearchedRows = 512;   // of a group; the rest is of one width
constexpr int64_t kTriedTiles = 12'000;  // dealt in search of better covers, an instance

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

  std::vector<Cover> Find(int32_t rows) {
    found_.clear();
    Cover cover;
    const int32_t widest = widths_ - 1;
    const int32_t whole = std::max(0, rows - kSearchedRows) / instance_.widths[widest];
    Add(cover, widest, whole);
    Extend(cover, widest, rows - whole * instance_.widths[widest]);
    return std::move(found_);
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

  // Covers `rows` more with the widths up to `which`, so that no tile is empty.
  void Extend(const Cover& cover, int32_t which, int32_t rows) {
    if (rows <= 0) {
      const auto at = std::ranges::upper_bound(found_, cover.cycles, {}, &Cover::cycles);
      found_.insert(at, cover);
      if (found_.size() > kCovers) found_.pop_back();
      return;
    }
    const double least = static_cast<double>(cover.cycles) + rows * LeastPerRow();
    if (found_.size() == kCovers && least >= static_cast<double>(found_.back().cycles)) return;
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
  std::vector<Cover> found_;
};

// Gives each tile to the CTA with the least so far, the first among equals.
class Dealer {
 public:
  explicit Dealer(int32_t ctas) : heap_(ctas) { std::iota(heap_.begin(), heap_.end(), 0); }

  int32_t Deal(int64_t cycles) {
    const int64_t least = heap_[0];
    const int64_t load = least + cycles * kCtas;
    longest_ = std::max(longest_, load / kCtas);
    size_t at = 0;
    for (size_t child = 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (load <= heap_[child]) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = load;
    ++dealt_;
    return static_cast<int32_t>(least % kCtas);
  }

  // The same loads as from `count` calls of Deal(); which CTA has which is lost.
  void DealAlike(int64_t cycles, int64_t count) {
    for (; count > 0; --count) {
      if (longest_ - heap_[0] / kCtas <= cycles) {
        // From here on each CTA gets one before any gets two.
        rounds_ += count / std::ssize(heap_) * cycles;
        count %= std::ssize(heap_);
        if (count == 0) return;
      }
      Deal(cycles);
    }
  }
  int64_t longest() const { return rounds_ + longest_; }
  int64_t dealt() const { return dealt_; }  // whole rounds apart

 private:
  static constexpr int64_t kCtas = 1 << 16;
  std::vector<int64_t> heap_;  // cycles * kCtas + CTA, the least first
  int64_t longest_ = 0;        // in the heap
  int64_t rounds_ = 0;         // cycles of every CTA beside those in the heap
  int64_t dealt_ = 0;
};

// Groups cut for one instance.
class Cut {
 public:
  Cut(const Instance& instance, const ProblemTypes& types, std::span<const TileGroup> groups,
      int32_t ctas)
      : instance_(&instance), types_(types), groups_(groups), ctas_(ctas) {
    for (const TileGroup& group : groups) {
      const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
      CoverSearch search(instance, steps);
      Part part;
      part.columns = CeilDiv(group.n, kBlockRows * instance.strips);
      part.covers = search.Find(group.m);
      for (int32_t i = 0; i < kMaxWidths; ++i) part.cycles[i] = search.cycles(i);
      cycles_ += part.columns * part.covers[0].cycles;
      parts_.push_back(std::move(part));
    }
    least_ = Mean(cycles_);
  }

  int64_t longest() const { return longest_; }  // after Deal()
  int64_t least() const { return least_; }      // no cover makes the longest CTA shorter

  // With the cheapest covers, then with others, group by group, until none helps or the
  // bound is reached.
  void Deal() {
    int64_t tries = kTriedTiles;
    longest_ = DealAll(tries);
    for (bool improved = true; improved;) {
      improved = false;
      for (Part& part : parts_) {
        for (size_t i = 0; i < part.covers.size() && tries > 0; ++i) {
          improved |= Try(part, i, tries);
        }
      }
    }
  }

  TileLists Lists() const {
    std::vector<std::pair<int64_t, TileEntry>> tiles;
    for (size_t g = 0; g < parts_.size(); ++g) AppendTiles(g, tiles);
    std::ranges::stable_sort(tiles, std::greater<>(), &std::pair<int64_t, TileEntry>::first);
    const auto ctas = static_cast<int32_t>(std::min<size_t>(ctas_, tiles.size()));
    std::vector<std::vector<TileEntry>> lists(ctas);
    Dealer dealer(ctas_);
    size_t most = 0;
    for (const auto& [cycles, tile] : tiles) {
      auto& list = lists[dealer.Deal(cycles)];
      list.push_back(tile);
      most = std::max(most, list.size());
    }
    TileLists result;
    result.instance = instance_;
    result.ctas = ctas;
    result.tiles_per_cta = ctas == 0 ? 0 : static_cast<int32_t>(most) + 1;
    result.longest_cycles = dealer.longest();
    result.mean_cycles = Mean(cycles_);
    for (auto& list : lists) {
      list.resize(most + 1);  // what is added has width -1
      result.entries.insert(result.entries.end(), list.begin(), list.end());
    }
    return result;
  }

 private:
  struct Part {
    std::vector<Cover> covers;
    size_t chosen = 0;
    int64_t columns = 0;  // of tiles
    int64_t cycles[kMaxWidths] = {};
  };

  int64_t Mean(int64_t cycles) const { return CeilDiv(cycles, ctas_); }

  // Keeps cover `i` if it makes the longest CTA shorter.
  bool Try(Part& part, size_t i, int64_t& tries) {
    const size_t before = part.chosen;
    const int64_t cycles =
        cycles_ + part.columns * (part.covers[i].cycles - part.covers[before].cycles);
    if (i == before || Mean(cycles) >= longest_) return false;
    part.chosen = i;
    const int64_t longest = DealAll(tries);
    if (longest >= longest_) {
      part.chosen = before;
      return false;
    }
    longest_ = longest;
    cycles_ = cycles;
    return true;
  }

  // The longest CTA with the covers chosen.
  int64_t DealAll(int64_t& tries) {
    alike_.clear();
    for (const Part& part : parts_) {
      for (int32_t i = 0; i < kMaxWidths; ++i) {
        const int64_t count = part.columns * part.covers[part.chosen].counts[i];
        if (count > 0) alike_.push_back({part.cycles[i], count});
      }
    }
    std::ranges::sort(alike_, std::greater<>());
    Dealer dealer(ctas_);
    for (const auto& [cycles, count] : alike_) dealer.DealAlike(cycles, count);
    tries -= dealer.dealt() + std::ssize(alike_);
    return dealer.longest();
  }

  // Tiles of the same weights follow each other, so that they run at about the same time.
  void AppendTiles(size_t g, std::vector<std::pair<int64_t, TileEntry>>& tiles) const {
    const Part& part = parts_[g];
    const TileGroup& group = groups_[g];
    const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
    const bool row_major = types_.c_layout == OutputLayout::kRowMajor;
    const int64_t row_elements = row_major ? group.c_stride : 1;
    const int64_t column_elements = row_major ? 1 : group.c_stride;
    const int64_t element_bytes = OutputElementBytes(types_.c_type);
    for (int64_t i = 0; i < part.columns; ++i) {
      const auto column = static_cast<int32_t>(i * kBlockRows * instance_->strips);
      int32_t row = 0;
      for (int32_t which = kMaxWidths - 1; which >= 0; --which) {
        for (int32_t left = part.covers[part.chosen].counts[which]; left > 0; --left) {
          const int32_t rows = std::min(instance_->widths[which], group.m - row);
          tiles.push_back(
              {part.cycles[which],
               {.block = group.block + static_cast<uint32_t>(column / kBlockRows * steps),
                .token = group.token + row,
                .rows = rows,
                .columns = group.n - column,
                .steps = steps,
                .group = static_cast<int32_t>(g),
                .scale_row = group.scale_row + row,
                .width = which,
                .c = group.c + (row * row_elements + column * column_elements) * element_bytes,
                .c_stride = group.c_stride}});
          row += rows;
        }
      }
    }
  }

  const Instance* instance_;
  ProblemTypes types_;
  std::span<const TileGroup> groups_;
  int32_t ctas_;
  std::vector<Part> parts_;  // of the groups
  int64_t cycles_ = 0;       // of all tiles
  int64_t least_ = 0;
  int64_t longest_ = 0;
  std::vector<std::pair<int64_t, int64_t>> alike_;  // cycles of a tile, number of tiles
};

}  // namespace

int64_t TileCycles(const Instance& instance, int32_t width, int32_t steps) {
  const double step = instance.strips > 1 ? kPairStep
                                          : std::max(kExpandStep + kExpandToken * width,
                                                     kProductStep + kProductToken * width);
  return static_cast<int64_t>(steps * step + kTileFixed + kTileToken * width);
}

TileLists CutTiles(const Instance& instance, const ProblemTypes& types,
                   std::span<const TileGroup> groups, int32_t multiprocessors) {
  Cut cut(instance, types, groups, multiprocessors);
  cut.Deal();
  return cut.Lists();
}

TileLists ChooseTiles(const ProblemTypes& types, std::span<const TileGroup> groups,
                      int32_t multiprocessors) {
  std::vector<Cut> cuts;
  for (const Instance& instance : kInstances) {
    cuts.emplace_back(instance, types, groups, multiprocessors);
  }
  // The cheapest first: it is likely that its longest CTA is shorter than what the others
  // take on average.
  std::vector<Cut*> order;
  for (Cut& cut : cuts) order.push_back(&cut);
  std::ranges::stable_sort(order, {}, [](const Cut* cut) { return cut->least(); });
  Cut* best = nullptr;
  for (Cut* cut : order) {
    if (best != nullptr && cut->least() > best->longest()) break;
    cut->Deal();
    if (best == nullptr || std::pair(cut->longest(), cut) < std::pair(best->longest(), best)) {
      best = cut;
    }
  }
  return best->Lists();
}

}  // namespace tetrad::sm90
