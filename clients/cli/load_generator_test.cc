// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/load_generator.h"

#include <atomic>
#include <barrier>
#include <mutex>

#include <gtest/gtest.h>

namespace tetrad::cli {
namespace {

TEST(LoadGeneratorTest, EndsAfterSoManyCalls) {
  std::atomic<int> calls{0};
  const LoadResult result = GenerateLoad({.in_flight = 3, .calls = 100, .duration = absl::Hours(1)},
                                         {}, [&](LoadSample& sample) {
                                           sample.client_us = ++calls;
                                           return absl::OkStatus();
                                         });
  EXPECT_EQ(calls, 100);
  ASSERT_EQ(result.samples.size(), 100u);
  double sum = 0;
  for (const LoadSample& sample : result.samples) sum += sample.client_us;
  EXPECT_EQ(sum, 100 * 101 / 2);
  EXPECT_TRUE(result.errors.empty());
  EXPECT_FALSE(result.stopped);
}

TEST(LoadGeneratorTest, EndsWithItsTimeAndCountsFromFirstToLast) {
  std::atomic<int> seconds{0};
  LoadOptions options{.in_flight = 1, .calls = 1000, .duration = absl::Seconds(10)};
  options.now = [&] { return absl::FromUnixSeconds(seconds); };
  const LoadResult result = GenerateLoad(options, {}, [&](LoadSample&) {
    seconds += 3;
    return absl::OkStatus();
  });
  EXPECT_EQ(result.samples.size(), 4u);  // begun at 0, 3, 6 and 9
  EXPECT_EQ(result.elapsed, absl::Seconds(12));
}

TEST(LoadGeneratorTest, AsManyAsAskedAreInFlightTogether) {
  std::barrier together(4);  // would wait for ever with fewer
  const LoadResult result =
      GenerateLoad({.in_flight = 4, .calls = 8, .duration = absl::Hours(1)}, {}, [&](LoadSample&) {
        together.arrive_and_wait();
        return absl::OkStatus();
      });
  EXPECT_EQ(result.samples.size(), 8u);
}

TEST(LoadGeneratorTest, ErrorsAreCountedByCodeAndKeepTheFirstMessage) {
  std::atomic<int> calls{0};
  LoadResult result = GenerateLoad({.in_flight = 1, .calls = 6, .duration = absl::Hours(1)}, {},
                                   [&](LoadSample&) -> absl::Status {
                                     const int call = calls++;
                                     if (call == 1) return absl::AbortedError("stale");
                                     if (call >= 4) return absl::UnavailableError("gone");
                                     return absl::OkStatus();
                                   });
  EXPECT_EQ(result.samples.size(), 3u);
  EXPECT_EQ(result.failed(), 3);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kAborted).count, 1);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kUnavailable).count, 2);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kUnavailable).first, "gone");
  LoadResult warmup;
  warmup.errors[absl::StatusCode::kAborted] = {5, "earlier"};
  MergeErrors(warmup, result);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kAborted).count, 6);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kAborted).first, "stale");
}

TEST(LoadGeneratorTest, AStopKeepsWhatWasMeasuredAndIsNoError) {
  std::stop_source stop;
  std::atomic<int> calls{0};
  const LoadResult result =
      GenerateLoad({.in_flight = 1, .calls = 1000, .duration = absl::Hours(1)}, stop.get_token(),
                   [&](LoadSample&) -> absl::Status {
                     if (calls++ < 5) return absl::OkStatus();
                     stop.request_stop();
                     return absl::CancelledError("cut off");
                   });
  EXPECT_EQ(result.samples.size(), 5u);
  EXPECT_TRUE(result.errors.empty());
  EXPECT_TRUE(result.stopped);
}

}  // namespace
}  // namespace tetrad::cli
