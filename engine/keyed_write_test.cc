// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/keyed_write.h"

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/support/error_detail.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

absl::Status Copied() { return absl::OkStatus(); }

Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail.has_value() ? detail->reason : Reason::kInternal;
}

TEST(KeyedWriteTest, RemembersTheLastKeyOnly) {
  KeyedWrite write;
  EXPECT_EQ(ReasonOf(write.Find("").status()), Reason::kUploadNotFound);
  const auto first = write.Join("a", 10, nullptr);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(write.Append(*first, 5, Copied).ok());
  EXPECT_EQ(write.Find("a")->offset, 10);
  EXPECT_EQ(write.Find("a")->bytes, 5);
  EXPECT_TRUE(write.Find("a")->under_way);
  bool replaced = false;
  const auto second = write.Join("b", 0, [&replaced] { replaced = true; });
  EXPECT_EQ(ReasonOf(write.Find("a").status()), Reason::kUploadNotFound);
  // The first writes on, and neither counts for nor ends the second.
  EXPECT_TRUE(write.Append(*first, 7, Copied).ok());
  write.Leave(*first);
  EXPECT_EQ(write.Find("b")->bytes, 0);
  EXPECT_TRUE(write.Find("b")->under_way);
  EXPECT_FALSE(replaced);
  write.Leave(*second);
  EXPECT_FALSE(write.Find("b")->under_way);
}

TEST(KeyedWriteTest, GoesOnWithoutGapAndTakesOver) {
  KeyedWrite write;
  int taken_over = 0;
  const auto first = write.Join("a", 100, [&taken_over] { ++taken_over; });
  ASSERT_TRUE(write.Append(*first, 50, Copied).ok());
  EXPECT_EQ(ReasonOf(write.Join("a", 151, nullptr).status()), Reason::kKeyReused);
  EXPECT_EQ(ReasonOf(write.Join("a", 99, nullptr).status()), Reason::kKeyReused);
  EXPECT_EQ(taken_over, 0) << "a refused stream replaces nobody";
  const auto second = write.Join("a", 120, nullptr);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(taken_over, 1);
  EXPECT_EQ(write.Find("a")->offset, 100);
  EXPECT_EQ(write.Find("a")->bytes, 20) << "what comes again is not counted twice";
  bool copied = false;
  const absl::Status late = write.Append(*first, 50, [&copied] {
    copied = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(ReasonOf(late), Reason::kTakenOver);
  EXPECT_FALSE(copied);
  write.Leave(*first);
  EXPECT_TRUE(write.Find("a")->under_way);
}

TEST(KeyedWriteTest, AFailedCopyDoesNotCount) {
  KeyedWrite write;
  const auto turn = write.Join("a", 0, nullptr);
  EXPECT_TRUE(
      absl::IsUnavailable(write.Append(*turn, 8, [] { return absl::UnavailableError("lost"); })));
  EXPECT_EQ(write.Find("a")->bytes, 0);
}

// The newer waits for the copy, whose bytes cannot come after its own.
TEST(KeyedWriteTest, JoiningWaitsForTheCopyUnderWay) {
  KeyedWrite write;
  std::vector<int> order;
  std::latch copying(1);
  std::latch replaced(1);
  const auto first = write.Join("a", 0, [&replaced] { replaced.count_down(); });
  std::jthread older([&] {
    EXPECT_TRUE(write
                    .Append(*first, 8,
                            [&] {
                              copying.count_down();
                              replaced.wait();  // the newer is in Join() now
                              order.push_back(1);
                              return absl::OkStatus();
                            })
                    .ok());
  });
  copying.wait();
  const auto second = write.Join("a", 0, nullptr);
  ASSERT_TRUE(write
                  .Append(*second, 8,
                          [&] {
                            order.push_back(2);
                            return absl::OkStatus();
                          })
                  .ok());
  older.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(write.Find("a")->bytes, 8);
}

// Streams that break anywhere and go on where they were told: the bytes said to be
// written are always written, and in the end all are.
TEST(KeyedWriteTest, WhatCountsIsWritten) {
  constexpr int64_t kBytes = 200;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    KeyedWrite write;
    std::vector<bool> written(kBytes, false);
    std::vector<std::pair<KeyedWrite::Turn, int64_t>> streams;  // and where it is
    const auto join = [&] {
      const auto so_far = write.Find("k");
      int64_t at = so_far.ok() ? so_far->bytes : 0;
      if (at > 0 && random.OneIn(4)) at = random.Below(static_cast<uint32_t>(at));
      const auto turn = write.Join("k", at, nullptr);
      ASSERT_TRUE(turn.ok()) << turn.status();
      streams.emplace_back(*turn, at);
    };
    join();
    while (write.Find("k")->bytes < kBytes) {
      if (random.OneIn(5)) join();
      // Mostly the newest, or nothing gets on.
      const auto count = static_cast<uint32_t>(streams.size());
      auto& [turn, at] = streams[random.OneIn(4) ? random.Below(count) : count - 1];
      const int64_t bytes = std::min<int64_t>(1 + random.Below(16), kBytes - at);
      const bool fails = random.OneIn(8);
      const absl::Status status = write.Append(turn, bytes, [&, at = at]() -> absl::Status {
        if (fails) return absl::InternalError("injected");
        std::fill_n(written.begin() + at, bytes, true);
        return absl::OkStatus();
      });
      if (status.ok()) at += bytes;
      if (turn != streams.back().first) {
        ASSERT_EQ(ReasonOf(status), Reason::kTakenOver);
      }
      const int64_t counted = write.Find("k")->bytes;
      ASSERT_TRUE(
          std::all_of(written.begin(), written.begin() + counted, [](bool w) { return w; }));
    }
  }
}

}  // namespace
}  // namespace tetrad
