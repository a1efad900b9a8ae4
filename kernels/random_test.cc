// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/random.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

// Known outputs of SplitMix64 for seed 1234567, from its published description.
TEST(RandomTest, FollowsSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(RandomTest, DrawsStayInRangeAndCoverIt) {
  Random random(1);
  int seen[7] = {};
  for (int i = 0; i < 7000; ++i) ++seen[random.Between(-3, 3) + 3];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
  for (int i = 0; i < 1000; ++i) {
    const float x = random.Significand();
    EXPECT_GE(x, 1.0f);
    EXPECT_LT(x, 2.0f);
  }
}

TEST(RandomTest, NormalHasMeanZeroAndVarianceOne) {
  Random random(2);
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

}  // namespace
}  // namespace tetrad
