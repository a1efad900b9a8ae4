// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/call_gate.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

namespace tetrad {
namespace {

bool Idle(const CallGate& gate, int timeout_ms) {
  pollfd entry{.fd = gate.idle_fd(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST(CallGateTest, IdleOnlyAfterClosedAndLastLeft) {
  CallGate gate;
  EXPECT_FALSE(Idle(gate, 0));
  {
    auto pass = gate.Enter();
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(gate.inside(), 1);
    gate.AnnounceClosing();
    EXPECT_TRUE(gate.closing());
    EXPECT_TRUE(gate.Enter().ok());
    gate.Close();
    EXPECT_EQ(gate.Enter().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(Idle(gate, 0));
  }
  EXPECT_TRUE(Idle(gate, 0));
  EXPECT_EQ(gate.inside(), 0);
}

TEST(CallGateTest, ClosingAnEmptyGateIsIdleAtOnce) {
  CallGate gate;
  gate.Close();
  EXPECT_TRUE(Idle(gate, 0));
}

TEST(CallGateTest, MovedPassLeavesOnce) {
  CallGate gate;
  CallGate::Pass outer;
  {
    auto pass = gate.Enter();
    ASSERT_TRUE(pass.ok());
    outer = *std::move(pass);
  }
  EXPECT_EQ(gate.inside(), 1);
  outer = CallGate::Pass();
  EXPECT_EQ(gate.inside(), 0);
}

TEST(CallGateTest, NobodyIsInsideOnceIdle) {
  for (int round = 0; round < 50; ++round) {
    CallGate gate;
    std::atomic<int> working{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (;;) {
          auto pass = gate.Enter();
          if (!pass.ok()) return;
          ++working;
          --working;
        }
      });
    }
    std::this_thread::yield();
    gate.Close();
    ASSERT_TRUE(Idle(gate, 10'000));
    EXPECT_EQ(working.load(), 0);
  }
}

}  // namespace
}  // namespace tetrad
