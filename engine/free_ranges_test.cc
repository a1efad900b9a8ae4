// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/free_ranges.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr int64_t kGranule = FreeRanges::kGranuleBytes;
using Range = FreeRanges::Range;

// The same by looking at every granule of every chunk.
class SlowRanges {
 public:
  SlowRanges(size_t chunks, size_t granules) : free_(chunks, std::vector<bool>(granules)) {}

  std::optional<Range> Take(int64_t bytes) {
    std::optional<Range> best;
    for (const Range& range : All()) {
      if (range.bytes >= bytes && (!best || range.bytes < best->bytes)) best = range;
    }
    if (!best) return std::nullopt;
    best->bytes = bytes;
    Mark(*best, false);
    return best;
  }
  Range Give(const Range& given) {
    Mark(given, true);
    for (const Range& range : All()) {
      if (range.chunk == given.chunk && range.offset <= given.offset &&
          given.offset < range.offset + range.bytes) {
        return range;
      }
    }
    return {};
  }
  // Every range that is as long as it can be, by chunk and offset.
  std::vector<Range> All() const {
    std::vector<Range> all;
    for (size_t chunk = 0; chunk < free_.size(); ++chunk) {
      bool open = false;
      for (size_t i = 0; i < free_[chunk].size(); ++i) {
        if (free_[chunk][i] && !open) all.push_back({chunk, static_cast<int64_t>(i) * kGranule, 0});
        open = free_[chunk][i];
        if (open) all.back().bytes += kGranule;
      }
    }
    return all;
  }

 private:
  void Mark(const Range& range, bool free) {
    for (int64_t at = range.offset; at < range.offset + range.bytes; at += kGranule) {
      EXPECT_NE(free_[range.chunk][at / kGranule], free);
      free_[range.chunk][at / kGranule] = free;
    }
  }
  std::vector<std::vector<bool>> free_;
};

TEST(FreeRangesTest, TakesTheSmallestThatFitsAndOfEqualOnesTheLowest) {
  FreeRanges ranges;
  EXPECT_EQ(ranges.Take(kGranule), std::nullopt);
  ranges.Give({2, 0, 2 * kGranule});
  ranges.Give({1, 8 * kGranule, 2 * kGranule});
  ranges.Give({1, 4 * kGranule, 2 * kGranule});
  ranges.Give({0, 0, 3 * kGranule});
  EXPECT_EQ(ranges.largest_bytes(), 3 * kGranule);
  EXPECT_EQ(ranges.Take(2 * kGranule), (Range{1, 4 * kGranule, 2 * kGranule}));
  EXPECT_EQ(ranges.Take(2 * kGranule), (Range{1, 8 * kGranule, 2 * kGranule}));
  EXPECT_EQ(ranges.Take(3 * kGranule), (Range{0, 0, 3 * kGranule}));
  EXPECT_EQ(ranges.Take(kGranule), (Range{2, 0, kGranule}));
  EXPECT_EQ(ranges.Take(2 * kGranule), std::nullopt);
  EXPECT_EQ(ranges.bytes(), kGranule);
}

TEST(FreeRangesTest, MergesWithBothNeighboursButNeverAcrossChunks) {
  FreeRanges ranges;
  ranges.Give({0, 0, kGranule});
  ranges.Give({1, 0, kGranule});
  ranges.Give({1, 2 * kGranule, kGranule});
  EXPECT_EQ(ranges.Give({0, kGranule, kGranule}), (Range{0, 0, 2 * kGranule}));
  EXPECT_EQ(ranges.Give({1, kGranule, kGranule}), (Range{1, 0, 3 * kGranule}));
  EXPECT_EQ(ranges.count(), 2u);
  ranges.Remove({1, 0, 3 * kGranule});
  EXPECT_EQ(ranges.bytes(), 2 * kGranule);
}

TEST(FreeRangesTest, HoldsTheLargestChunkAndNumber) {
  constexpr int64_t kMost = (int64_t{1} << 44) - kGranule;
  constexpr uint64_t kLast = (uint64_t{1} << 48) - 1;
  FreeRanges ranges;
  ranges.Give({kLast, 0, kGranule});
  ranges.Give({kLast - 1, 0, kMost});
  ranges.Give({kLast, kMost - kGranule, kGranule});
  EXPECT_EQ(ranges.largest_bytes(), kMost);
  EXPECT_EQ(ranges.Take(2 * kGranule), (Range{kLast - 1, 0, 2 * kGranule}));
  EXPECT_EQ(ranges.Give({kLast, kGranule, kMost - 2 * kGranule}), (Range{kLast, 0, kMost}));
  EXPECT_EQ(ranges.Take(kMost), (Range{kLast, 0, kMost}));
  EXPECT_EQ(ranges.Take(INT64_MAX / kGranule * kGranule), std::nullopt);
}

TEST(FreeRangesTest, AgreesWithTheModelOverRandomOperations) {
  constexpr size_t kChunks = 5;
  constexpr int64_t kChunkGranules = 64;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FreeRanges ranges;
    SlowRanges model(kChunks, kChunkGranules);
    std::vector<Range> taken;
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      taken.push_back({chunk, 0, kChunkGranules * kGranule});
    }
    for (int step = 0; step < 3000; ++step) {
      // Phases that fill and phases that drain.
      const bool give = random.Below(10) < (step / 300 % 2 == 0 ? 6u : 4u);
      if (give && !taken.empty()) {
        std::swap(taken[random.Below(static_cast<uint32_t>(taken.size()))], taken.back());
        Range range = taken.back();
        taken.pop_back();
        if (range.bytes > kGranule && random.OneIn(4)) {  // only its end
          const int64_t keep = kGranule * random.Between(1, range.bytes / kGranule - 1);
          taken.push_back({range.chunk, range.offset, keep});
          range = {range.chunk, range.offset + keep, range.bytes - keep};
        }
        ASSERT_EQ(ranges.Give(range), model.Give(range));
      } else {
        const int64_t bytes = kGranule * (random.OneIn(8) ? random.Between(1, kChunkGranules + 1)
                                                          : random.Between(1, 9));
        const auto range = ranges.Take(bytes);
        ASSERT_EQ(range, model.Take(bytes));
        if (range) taken.push_back(*range);
      }
      int64_t bytes = 0;
      int64_t largest = 0;
      const auto all = model.All();
      for (const Range& range : all) {
        bytes += range.bytes;
        largest = std::max(largest, range.bytes);
      }
      ASSERT_EQ(ranges.count(), all.size());
      ASSERT_EQ(ranges.bytes(), bytes);
      ASSERT_EQ(ranges.largest_bytes(), largest);
    }
  }
}

TEST(FreeRangesDeathTest, MisuseEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  FreeRanges ranges;
  ranges.Give({0, 4 * kGranule, 4 * kGranule});
  EXPECT_DEATH(ranges.Give({0, 4 * kGranule, 4 * kGranule}), "check failed");
  EXPECT_DEATH(ranges.Give({0, 0, 5 * kGranule}), "check failed");
  EXPECT_DEATH(ranges.Give({0, 7 * kGranule, 2 * kGranule}), "check failed");
  EXPECT_DEATH(ranges.Give({0, 1, kGranule}), "check failed");
  EXPECT_DEATH(ranges.Give({0, 0, 100}), "check failed");
  EXPECT_DEATH(ranges.Give({0, 16 * kGranule, int64_t{1} << 44}), "check failed");
  EXPECT_DEATH(ranges.Give({uint64_t{1} << 48, 0, kGranule}), "check failed");
  EXPECT_DEATH(ranges.Take(0), "check failed");
  EXPECT_DEATH(ranges.Remove({0, 4 * kGranule, kGranule}), "check failed");
}

}  // namespace
}  // namespace tetrad
