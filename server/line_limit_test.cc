// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/line_limit.h"

#include <gtest/gtest.h>

namespace tetrad {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);

TEST(LineLimitTest, ABurstThenOneAnIntervalAndWhatWasLeftOutIsTold) {
  LineLimit limit(3, kInterval);
  absl::Time now = absl::FromUnixSeconds(1000);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Take(now), 0);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(limit.Take(now + absl::Seconds(9)), std::nullopt);
  EXPECT_EQ(limit.Take(now + kInterval), 50);
  EXPECT_EQ(limit.Take(now + kInterval), std::nullopt);
  // The rest of an interval counts.
  EXPECT_EQ(limit.Take(now + 2.5 * kInterval), 1);
  EXPECT_EQ(limit.Take(now + 3 * kInterval), 0);
}

TEST(LineLimitTest, NeverMoreThanTheBurstHoweverLongItWasQuiet) {
  LineLimit limit(2, kInterval);
  absl::Time now = absl::FromUnixSeconds(1000);
  for (int round = 0; round < 3; ++round, now += absl::Hours(1'000'000)) {
    EXPECT_TRUE(limit.Take(now).has_value());
    EXPECT_TRUE(limit.Take(now).has_value());
    EXPECT_FALSE(limit.Take(now).has_value());
  }
}

TEST(LineLimitTest, AClockThatGoesBackGivesNothing) {
  LineLimit limit(1, kInterval);
  const absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_TRUE(limit.Take(now).has_value());
  EXPECT_FALSE(limit.Take(now - absl::Hours(1)).has_value());
}

}  // namespace
}  // namespace tetrad
