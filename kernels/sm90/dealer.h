// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Dealer: which CTA gets which tile. Longest first is the caller's business; here each tile goes
// to the CTA with the least so far. A pure function of what is dealt, in its order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

namespace tetrad::sm90 {

// Lists are all as long as the longest. So that one CTA with many short tiles beside CTAs
// with one deep tile each does not make them large, a CTA gets at most so many tiles: entries
// are at most 4 * tiles + 64 * ctas.
constexpr int64_t MostTiles(int64_t tiles, int64_t ctas) { return 4 * tiles / ctas + 63; }

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

}  // namespace tetrad::sm90
