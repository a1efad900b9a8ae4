// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <grpc/support/time.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace tetrad {
namespace {

TEST(ToTimeTest, KeepsNearFarAndNoDeadlinesInOrder) {
  const gpr_timespec near{1'800'000'000, 5, GPR_CLOCK_REALTIME};
  EXPECT_EQ(ToTime(near), absl::FromUnixNanos(1'800'000'000'000'000'005));
  // "99999999H", the longest timeout that a client can send.
  const gpr_timespec far{1'800'000'000 + 99'999'999ll * 3600, 0, GPR_CLOCK_REALTIME};
  EXPECT_GT(ToTime(far), absl::Now() + absl::Hours(90'000'000));
  EXPECT_LT(ToTime(far), absl::InfiniteFuture());
  EXPECT_EQ(ToTime(gpr_inf_future(GPR_CLOCK_REALTIME)), absl::InfiniteFuture());
  EXPECT_EQ(ToTime(gpr_inf_future(GPR_CLOCK_MONOTONIC)), absl::InfiniteFuture());
  EXPECT_LT(ToTime(gpr_inf_past(GPR_CLOCK_REALTIME)), absl::Now());
}

}  // namespace
}  // namespace tetrad
