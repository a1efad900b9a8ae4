// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/tiles.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

// Lists are all as long as the longest. So that one CTA with many short tiles beside CTAs
// with one deep tile each does not make them large, a CTA gets at most so many tiles: entries
// are at most 4 * tiles + 64 * ctas.
constexpr int64_t MostTiles(int64_t tiles, int64_t ctas) { return 4 * tiles / ctas + 63; }

constexpr int32_t kMaxStrips = 2;
static_assert(std::ranges::all_of(kInstances,
                                  [](const Instance& i) { return i.strips <= kMaxStrips; }));

// Columns of tiles.
int64_t TileColumns(int32_t n, int32_t strips) { return CeilDiv(n, int64_t{kBlockRows} * strips); }

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

// Gives each tile to the CTA with the least so far, the first among equals, of those that
// have fewer than MostTiles().
class Dealer {
 public:
  explicit Dealer(int32_t ctas) : heap_(ctas), counts_(ctas) {}

  // Nothing is dealt yet, of `tiles`.
  void Begin(int64_t tiles) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::ranges::fill(counts_, 0);
    limit_ = MostTiles(tiles, std::ssize(heap_));
    longest_ = most_ = rounds_ = rounds_cycles_ = dealt_ = 0;
  }

  int32_t Deal(int64_t cycles) {
    const int64_t least = heap_[0];
    const auto cta = static_cast<int32_t>(least % kCtas);
    int64_t load = least + cycles * kCtas;
    longest_ = std::max(longest_, load / kCtas);
    most_ = std::max(most_, ++counts_[cta]);
    if (counts_[cta] + rounds_ == limit_) load = kFull;
    size_t at = 0;
    for (size_t child = 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (load <= heap_[child]) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = load;
    ++dealt_;
    return cta;
  }

  // The same loads as from `count` calls of Deal(); which CTA has which is lost.
  void DealAlike(int64_t cycles, int64_t count) {
    for (; count > 0; --count) {
      const int64_t rounds = count / std::ssize(heap_);
      if (longest_ - heap_[0] / kCtas <= cycles && most() + rounds < limit_) {
        // From here on each CTA gets one before any gets two.
        rounds_ += rounds;
        rounds_cycles_ += rounds * cycles;
        count %= std::ssize(heap_);
        if (count == 0) return;
      }
      Deal(cycles);
    }
  }

  // Calls Deal() `count` times; appends which CTA each tile is for.
  void Deal(int64_t cycles, int64_t count, std::vector<uint16_t>& ctas) {
    while (count > 0) {
      const int64_t rounds = count / std::ssize(heap_);
      // Unlike above not for equality: then some CTA gets two before another gets one.
      if (rounds > 0 && longest_ - heap_[0] / kCtas < cycles && most() + rounds < limit_) {
        std::ranges::sort(heap_);  // still a heap; each round takes the CTAs in this order
        for (int64_t round = 0; round < rounds; ++round) {
          for (const int64_t load : heap_) ctas.push_back(static_cast<uint16_t>(load % kCtas));
        }
        rounds_ += rounds;
        rounds_cycles_ += rounds * cycles;
        count -= rounds * std::ssize(heap_);
      } else {
        ctas.push_back(static_cast<uint16_t>(Deal(cycles)));
        --count;
      }
    }
  }

  int64_t longest() const { return rounds_cycles_ + longest_; }
  int64_t most() const { return rounds_ + most_; }  // tiles of a CTA
  int64_t dealt() const { return dealt_; }          // whole rounds apart

 private:
  static constexpr int64_t kCtas = 1 << 16;
  static constexpr int64_t kFull = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> heap_;    // cycles * kCtas + CTA, the least first; kFull
  std::vector<int64_t> counts_;  // tiles of a CTA beside the rounds
  int64_t limit_ = 0;
  int64_t longest_ = 0;  // in the heap
  int64_t most_ = 0;     // of counts_
  int64_t rounds_ = 0;   // tiles of every CTA beside those in the heap
  int64_t rounds_cycles_ = 0;
  int64_t dealt_ = 0;
};

// Of all tiles with the cheapest covers.
int64_t LeastCycles(const Instance& instance, const Kinds& kinds) {
  int64_t cycles = 0;
  for (const Kind& kind : kinds.all) {
    const Cover cheapest = CoverSearch(instance, kind.steps).Find(kind.m, 1)[0];
    cycles += kind.columns[instance.strips - 1] * cheapest.cycles;
  }
  return cycles;
}

// Groups cut for one instance.
class Cut {
 public:
  Cut(const Instance& instance, const ProblemTypes& types, std::span<const TileGroup> groups,
      const Kinds& kinds, int32_t ctas)
      : instance_(&instance),
        types_(types),
        groups_(groups),
        kinds_(&kinds),
        ctas_(ctas),
        dealer_(ctas) {
    FindCovers(1);
    parts_.reserve(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      const int64_t columns = TileColumns(groups[g].n, instance.strips);
      parts_.push_back({.columns = columns, .kind = kinds.of_group[g]});
      const Cover& cover = Chosen(parts_.back());
      cycles_ += columns * cover.cycles;
      for (const int32_t count : cover.counts) runs_ += count > 0 ? 1 : 0;
    }
  }

  const Instance* instance() const { return instance_; }
  int64_t longest() const { return longest_; }  // after Deal()

  // With the cheapest covers, then with others, group by group, until none helps or the
  // bound is reached.
  void Deal() {
    if (runs_ >= kTriedTiles) {
      longest_ = DealKinds();
      return;
    }
    int64_t tries = kTriedTiles;
    longest_ = DealAll(tries);
    if (tries > 0) FindCovers(kCovers);
    for (bool improved = true; improved;) {
      improved = false;
      for (Part& part : parts_) {
        for (int32_t i = 0; i < covers_[part.kind].count && tries > 0; ++i) {
          improved |= Try(part, i, tries);
        }
      }
    }
  }

  TileLists Lists() const {
    const std::vector<Run> runs = Runs();
    int64_t tiles = 0;
    for (const Run& run : runs) tiles += Tiles(run);
    const auto ctas = static_cast<int32_t>(std::min<int64_t>(ctas_, tiles));
    // Dealt before they are made: only then it is known where a list begins.
    std::vector<uint16_t> dealt_to;
    dealt_to.reserve(static_cast<size_t>(tiles));
    Dealer dealer(ctas_);
    dealer.Begin(tiles);
    for (auto run = runs.begin(); run != runs.end();) {
      const int64_t cycles = run->cycles;
      int64_t alike = 0;
      for (; run != runs.end() && run->cycles == cycles; ++run) alike += Tiles(*run);
      dealer.Deal(cycles, alike, dealt_to);
    }
    TileLists result;
    result.instance = instance_;
    result.ctas = ctas;
    result.tiles_per_cta = ctas == 0 ? 0 : static_cast<int32_t>(dealer.most()) + 1;
    result.longest_cycles = dealer.longest();
    result.mean_cycles = CeilDiv(cycles_, ctas_);
    result.entries.resize(static_cast<size_t>(int64_t{ctas} * result.tiles_per_cta));
    std::vector<size_t> next(static_cast<size_t>(ctas));
    for (size_t i = 0; i < next.size(); ++i) next[i] = i * result.tiles_per_cta;
    auto to = dealt_to.begin();
    for (const Run& run : runs) {
      AppendTiles(run, [&](const TileEntry& tile) { result.entries[next[*to++]++] = tile; });
    }
    return result;
  }

 private:
  // A group.
  struct Part {
    int64_t columns = 0;  // of tiles
    int32_t kind = 0;
    int32_t chosen = 0;  // of the covers of its kind
  };
  // Of a kind: `count` of found_ from `first` on.
  struct Covers {
    size_t first = 0;
    int32_t count = 0;
    int64_t cycles[kMaxWidths] = {};  // of a tile
  };
  // Tiles of one group and width.
  struct Run {
    int64_t cycles = 0;  // of a tile
    int32_t group = 0;
    int32_t which = 0;
  };

  void FindCovers(int32_t most) {
    covers_.clear();
    found_.clear();
    covers_.reserve(kinds_->all.size());
    for (const Kind& kind : kinds_->all) {
      CoverSearch search(*instance_, kind.steps);
      const std::span<const Cover> found = search.Find(kind.m, most);
      Covers covers{.first = found_.size(), .count = static_cast<int32_t>(found.size())};
      for (int32_t i = 0; i < kMaxWidths; ++i) covers.cycles[i] = search.cycles(i);
      covers_.push_back(covers);
      found_.insert(found_.end(), found.begin(), found.end());
    }
  }

  const Cover& CoverOf(const Part& part, int32_t i) const {
    return found_[covers_[part.kind].first + static_cast<size_t>(i)];
  }
  const Cover& Chosen(const Part& part) const { return CoverOf(part, part.chosen); }
  int64_t Tiles(const Run& run) const {
    const Part& part = parts_[run.group];
    return part.columns * Chosen(part).counts[run.which];
  }

  // Keeps cover `i` if it makes the longest CTA shorter.
  bool Try(Part& part, int32_t i, int64_t& tries) {
    const int32_t before = part.chosen;
    const int64_t cycles =
        cycles_ + part.columns * (CoverOf(part, i).cycles - CoverOf(part, before).cycles);
    if (i == before || CeilDiv(cycles, ctas_) >= longest_) return false;
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
      AddAlike(covers_[part.kind], Chosen(part), part.columns);
    }
    DealAlike();
    tries -= dealer_.dealt() + std::ssize(alike_);
    return dealer_.longest();
  }

  // The same with the cheapest covers, which are those of all groups of a kind.
  int64_t DealKinds() {
    alike_.clear();
    for (size_t i = 0; i < covers_.size(); ++i) {
      AddAlike(covers_[i], found_[covers_[i].first], kinds_->all[i].columns[instance_->strips - 1]);
    }
    DealAlike();
    return dealer_.longest();
  }

  void AddAlike(const Covers& covers, const Cover& cover, int64_t columns) {
    for (int32_t i = 0; i < kMaxWidths; ++i) {
      const int64_t count = columns * cover.counts[i];
      if (count > 0) alike_.emplace_back(covers.cycles[i], count);
    }
  }

  void DealAlike() {
    std::ranges::sort(alike_, std::greater<>());
    int64_t tiles = 0;
    for (const auto& [cycles, count] : alike_) tiles += count;
    dealer_.Begin(tiles);
    for (const auto& [cycles, count] : alike_) dealer_.DealAlike(cycles, count);
  }

  // The longest tiles first.
  std::vector<Run> Runs() const {
    std::vector<Run> runs;
    runs.reserve(parts_.size());
    for (size_t g = 0; g < parts_.size(); ++g) {
      const Part& part = parts_[g];
      for (int32_t which = kMaxWidths - 1; which >= 0; --which) {
        if (Chosen(part).counts[which] == 0) continue;
        runs.push_back({covers_[part.kind].cycles[which], static_cast<int32_t>(g), which});
      }
    }
    std::ranges::stable_sort(runs, std::greater<>(), &Run::cycles);
    return runs;
  }

  // Tiles of the same weights follow each other, so that they run at about the same time.
  template <class Append>
  void AppendTiles(const Run& run, const Append& append) const {
    const Part& part = parts_[run.group];
    const TileGroup& group = groups_[run.group];
    const Cover& cover = Chosen(part);
    const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
    const bool row_major = types_.c_layout == OutputLayout::kRowMajor;
    const int64_t row_elements = row_major ? group.c_stride : 1;
    const int64_t column_elements = row_major ? 1 : group.c_stride;
    const int64_t element_bytes = OutputElementBytes(types_.c_type);
    const int32_t width = instance_->widths[run.which];
    int32_t first_row = 0;  // wider tiles are above, and full
    for (int32_t i = run.which + 1; i < kMaxWidths; ++i) {
      first_row += cover.counts[i] * instance_->widths[i];
    }
    for (int64_t i = 0; i < part.columns; ++i) {
      const auto column = static_cast<int32_t>(i * kBlockRows * instance_->strips);
      int32_t row = first_row;
      for (int32_t left = cover.counts[run.which]; left > 0; --left) {
        append(TileEntry{
            .block = group.block + static_cast<uint32_t>(column / kBlockRows * steps),
            .token = group.token + row,
            .rows = std::min(width, group.m - row),
            .columns = group.n - column,
            .steps = steps,
            .group = run.group,
            .scale_row = group.scale_row + row,
            .width = run.which,
            .c = group.c + (row * row_elements + column * column_elements) * element_bytes,
            .c_stride = group.c_stride});
        row += width;
      }
    }
  }

  const Instance* instance_;
  ProblemTypes types_;
  std::span<const TileGroup> groups_;
  const Kinds* kinds_;
  int32_t ctas_;
  std::vector<Covers> covers_;  // of the kinds
  std::vector<Cover> found_;
  std::vector<Part> parts_;  // of the groups
  int64_t runs_ = 0;         // with the cheapest covers
  int64_t cycles_ = 0;       // of all tiles
  int64_t longest_ = 0;
  std::vector<std::pair<int64_t, int64_t>> alike_;  // cycles of a tile, number of tiles
  Dealer dealer_;
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
  const Kinds kinds(groups);
  Cut cut(instance, types, groups, kinds, multiprocessors);
  cut.Deal();
  return cut.Lists();
}

TileLists ChooseTiles(const ProblemTypes& types, std::span<const TileGroup> groups,
                      int32_t multiprocessors) {
  const Kinds kinds(groups);
  // The cheapest first: it is likely that its longest CTA is shorter than what the others
  // take on average, which no cover makes less.
  std::vector<std::pair<int64_t, const Instance*>> order;
  for (const Instance& instance : kInstances) {
    order.emplace_back(CeilDiv(LeastCycles(instance, kinds), multiprocessors), &instance);
  }
  std::ranges::sort(order);
  std::optional<Cut> best;
  for (const auto& [least, instance] : order) {
    if (best.has_value() && least > best->longest()) break;
    Cut cut(*instance, types, groups, kinds, multiprocessors);
    cut.Deal();
    if (!best.has_value() ||
        std::pair(cut.longest(), instance) < std::pair(best->longest(), best->instance())) {
      best = std::move(cut);
    }
  }
  return best->Lists();
}

}  // namespace tetrad::sm90
