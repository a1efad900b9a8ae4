// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/client_calls.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail.has_value() ? detail->reason : Reason::kInternal;
}

TEST(ClientCallsTest, EachClientHasTheLimitForItself) {
  ClientCalls calls(2);
  ClientCalls::Pass first, second, third, other;
  EXPECT_TRUE(calls.Enter("a", first).ok());
  EXPECT_TRUE(calls.Enter("a", second).ok());
  const absl::Status refused = calls.Enter("a", third);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kQuota);
  EXPECT_THAT(refused.message(), HasSubstr("client_calls: 2"));
  EXPECT_EQ(calls.refused(), 1);
  EXPECT_TRUE(calls.Enter("b", other).ok());
  EXPECT_EQ(calls.clients(), 2);
  first = ClientCalls::Pass();
  EXPECT_TRUE(calls.Enter("a", third).ok());
  // What was refused counts for nothing.
  second = ClientCalls::Pass();
  third = ClientCalls::Pass();
  EXPECT_EQ(calls.clients(), 1);
}

TEST(ClientCallsTest, APassCountsOnceHoweverItMoves) {
  ClientCalls calls(1);
  ClientCalls::Pass pass;
  ASSERT_TRUE(calls.Enter("a", pass).ok());
  ClientCalls::Pass moved = std::move(pass);
  pass = ClientCalls::Pass();
  EXPECT_FALSE(calls.Enter("a", pass).ok());
  ASSERT_TRUE(calls.Enter("b", moved).ok());  // "a" has ended
  EXPECT_TRUE(calls.Enter("a", pass).ok());
}

TEST(ClientCallsTest, ClientsThatComeAndGoLeaveNothing) {
  ClientCalls calls(1);
  for (int i = 0; i < 10'000; ++i) {
    ClientCalls::Pass pass;
    ASSERT_TRUE(calls.Enter(absl::StrCat("client ", i), pass).ok());
    ASSERT_EQ(calls.clients(), 1);
    ASSERT_LE(calls.entries(), static_cast<int64_t>(ClientCalls::kShards) + 1);
  }
  EXPECT_EQ(calls.clients(), 0);
}

TEST(ClientCallsTest, ClientsAtOnceAreBounded) {
  constexpr size_t kPerShard = 3;
  ClientCalls calls(5, kPerShard);
  std::vector<ClientCalls::Pass> passes;
  absl::Status refused;
  int last = 0;
  for (; refused.ok(); ++last) {
    refused = calls.Enter(absl::StrCat(last), passes.emplace_back());
    ASSERT_LE(last, static_cast<int>(kPerShard * ClientCalls::kShards));
  }
  EXPECT_EQ(ReasonOf(refused), Reason::kTableFull);
  // A client that is known has room, and with every client gone so has the other.
  ClientCalls::Pass again;
  EXPECT_TRUE(calls.Enter("0", again).ok());
  passes.clear();
  again = ClientCalls::Pass();
  EXPECT_TRUE(calls.Enter(absl::StrCat(last - 1), again).ok());
}

TEST(ClientCallsTest, ThreadsNeverExceedTheLimitAndLeaveNothing) {
  constexpr int64_t kLimit = 3;
  ClientCalls calls(kLimit);
  std::atomic<int64_t> inside{0};
  std::atomic<int64_t> entered{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20'000; ++i) {
          ClientCalls::Pass shared, own;
          if (calls.Enter("shared", shared).ok()) {
            ASSERT_LE(inside.fetch_add(1) + 1, kLimit);
            ++entered;
            inside.fetch_sub(1);
          }
          ASSERT_TRUE(calls.Enter(absl::StrCat(t, "/", i % 7), own).ok());
        }
      });
    }
  }
  EXPECT_EQ(entered + calls.refused(), 4 * 20'000);
  EXPECT_EQ(calls.clients(), 0);
}

}  // namespace
}  // namespace tetrad
