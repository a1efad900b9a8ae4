// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/written_ranges.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/random.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST(WrittenRangesTest, WhatIsBeingWrittenIsNeitherWrittenNorFree) {
  WrittenRanges ranges;
  ASSERT_TRUE(ranges.Reserve("codes", 10, 10, 100).ok());
  EXPECT_TRUE(ranges.copying());
  EXPECT_EQ(ranges.first_copy(), 10);
  EXPECT_EQ(ranges.written_bytes(), 0);
  const absl::Status refused = ranges.Reserve("codes", 19, 5, 100);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("codes: some of the 5 bytes at offset 19 are being written by another"));
  ranges.Release(10);
  EXPECT_FALSE(ranges.copying());
  ASSERT_TRUE(ranges.Reserve("codes", 19, 5, 100).ok());
  ranges.Commit(19);
  EXPECT_THAT(std::string(ranges.Reserve("codes", 10, 10, 100).message()),
              HasSubstr("were already written"));
}

// A range that is only reserved may yet be released, so that what would join it
// alone is a piece of its own.
TEST(WrittenRangesTest, ReservedRangesCountAsPieces) {
  WrittenRanges ranges;
  ASSERT_TRUE(ranges.Reserve("codes", 0, 1, 2).ok());
  ASSERT_TRUE(ranges.Reserve("codes", 1, 1, 2).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ranges.Reserve("codes", 2, 1, 2)));
  ranges.Commit(1);
  EXPECT_TRUE(ranges.Reserve("codes", 2, 1, 2).ok()) << "joins what is written";
  ranges.Commit(0);
  ranges.Commit(2);
  EXPECT_TRUE(ranges.Covers(3));
}

// Against a table of bytes, over every order of reserving, committing and releasing.
TEST(WrittenRangesTest, AgreesWithATableOfBytes) {
  constexpr int64_t kBytes = 64;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    WrittenRanges ranges;
    enum class State { kFree, kReserved, kWritten };
    std::vector<State> table(kBytes, State::kFree);
    struct Range {
      int64_t offset, bytes;
    };
    std::vector<Range> reserved;
    const auto set = [&](const Range& range, State state) {
      std::fill_n(table.begin() + range.offset, range.bytes, state);
    };
    for (int step = 0; step < 200; ++step) {
      if (reserved.size() < 4 && random.Below(2) == 0) {
        const int64_t offset = random.Below(kBytes);
        const Range range{
            offset,
            1 + random.Below(static_cast<uint32_t>(std::min<int64_t>(12, kBytes - offset)))};
        const auto begin = table.begin() + offset;
        const bool free = std::all_of(begin, begin + range.bytes,
                                      [](State state) { return state == State::kFree; });
        const bool written = std::any_of(begin, begin + range.bytes,
                                         [](State state) { return state == State::kWritten; });
        const absl::Status status = ranges.Reserve("scales", offset, range.bytes, 100);
        ASSERT_EQ(status.ok(), free) << status;
        if (free) {
          set(range, State::kReserved);
          reserved.push_back(range);
        } else {
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr(written ? "already written" : "being written"));
        }
      } else if (!reserved.empty()) {
        const size_t which = random.Below(static_cast<uint32_t>(reserved.size()));
        const Range range = reserved[which];
        reserved.erase(reserved.begin() + static_cast<int64_t>(which));
        const bool commit = !random.OneIn(3);
        commit ? ranges.Commit(range.offset) : ranges.Release(range.offset);
        set(range, commit ? State::kWritten : State::kFree);
      }
      const auto first_gap =
          std::find_if(table.begin(), table.end(), [](State s) { return s != State::kWritten; });
      ASSERT_EQ(ranges.first_gap(), first_gap - table.begin());
      ASSERT_EQ(ranges.Covers(kBytes), first_gap == table.end());
      ASSERT_EQ(ranges.written_bytes(), std::count(table.begin(), table.end(), State::kWritten));
      ASSERT_EQ(ranges.copying(), !reserved.empty());
      const int64_t begin = random.Below(kBytes);
      const int64_t end = begin + random.Below(static_cast<uint32_t>(kBytes - begin + 1));
      std::vector<ByteRange> gaps;
      for (int64_t i = begin; i < end; ++i) {
        if (table[static_cast<size_t>(i)] == State::kWritten) continue;
        const bool joins = !gaps.empty() && gaps.back().offset + gaps.back().bytes == i;
        if (!joins) gaps.push_back({i, 0});
        ++gaps.back().bytes;
      }
      ASSERT_EQ(ranges.Gaps(begin, end, SIZE_MAX), gaps);
      gaps.resize(std::min<size_t>(gaps.size(), 2));
      ASSERT_EQ(ranges.Gaps(begin, end, 2), gaps);
    }
  }
}

}  // namespace
}  // namespace tetrad
