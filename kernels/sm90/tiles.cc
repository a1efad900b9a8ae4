// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/tiles.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/problem.h"
#include "kernels/sm90/cover_search.h"
#include "kernels/sm90/dealer.h"

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

constexpr int64_t kTriedTiles = 12'000;  // dealt in search of better covers, an instance

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
  // Of a kind: `count` of found_, from `first` on.
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
