// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// No ring is lost, whatever the waiter does at that moment: spins, goes to
// sleep, sleeps, times out, returns. A lost one hangs these tests, which then
// end by their time limit.
#include "engine/support/doorbell.h"

#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr Doorbell::Clock::time_point kForEver = Doorbell::Clock::time_point::max();

// Never, ends while the ring is on its way, always long enough.
class DoorbellTest : public ::testing::TestWithParam<nanoseconds> {};
INSTANTIATE_TEST_SUITE_P(Spin, DoorbellTest,
                         ::testing::Values(nanoseconds(0), nanoseconds(1), nanoseconds(500),
                                           microseconds(5), milliseconds(50)),
                         [](const auto& info) {
                           return std::to_string(info.param.count()) + "ns";
                         });

TEST_P(DoorbellTest, ARingBeforeTheWaitEndsIt) {
  Doorbell doorbell(GetParam());
  doorbell.Ring();
  doorbell.Ring();  // not counted
  doorbell.WaitUntil(kForEver);
  const auto began = Doorbell::Clock::now();
  doorbell.WaitUntil(began + milliseconds(5));
  EXPECT_GE(Doorbell::Clock::now() - began, milliseconds(5));
}

TEST_P(DoorbellTest, AWaitEndsInTime) {
  Doorbell doorbell(GetParam());
  for (const nanoseconds wait : {nanoseconds(-1000), nanoseconds(0), nanoseconds(3'000'000)}) {
    const auto until = Doorbell::Clock::now() + wait;
    doorbell.WaitUntil(until);
    EXPECT_GE(Doorbell::Clock::now(), until);
  }
  doorbell.Ring();
  doorbell.WaitUntil(kForEver);  // still works after time-outs
}

// Two threads wake each other in turn; a plain number goes with each ring.
TEST_P(DoorbellTest, TwoThreadsInTurn) {
  constexpr int kTurns = 20'000;
  auto there = std::make_shared<Doorbell>(GetParam());
  auto back = std::make_shared<Doorbell>(GetParam());
  int number = 0;
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      there->WaitUntil(kForEver);
      ++number;
      back->Ring();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    there->Ring();
    back->WaitUntil(kForEver);
    ASSERT_EQ(number, i + 1);
  }
  other.join();
}

// The waiter must see, in some return, all that was done before any ring.
TEST_P(DoorbellTest, ManyRingersAndNoRingIsLost) {
  constexpr int kRingers = 4;
  constexpr int64_t kRings = 5'000;
  auto doorbell = std::make_shared<Doorbell>(GetParam());
  std::atomic<int64_t> seen{0};
  std::atomic<int64_t> done{0};
  std::vector<std::thread> ringers;
  for (int r = 0; r < kRingers; ++r) {
    ringers.emplace_back([&, r] {
      for (int64_t i = 0; i < kRings; ++i) {
        const int64_t mine = done.fetch_add(1, std::memory_order_relaxed) + 1;
        doorbell->Ring();
        // Now and then nobody else rings until this one was heard.
        if (i % 16 == r) {
          while (seen.load(std::memory_order_relaxed) < mine) std::this_thread::yield();
        }
      }
    });
  }
  while (seen < kRingers * kRings) {
    doorbell->WaitUntil(kForEver);
    seen.store(done.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  for (std::thread& ringer : ringers) ringer.join();
}

// Time-outs that race with rings: each ring is answered by a return after it.
TEST_P(DoorbellTest, RingsWhileTheTimeRunsOut) {
  constexpr int64_t kRings = 2'000;
  auto doorbell = std::make_shared<Doorbell>(GetParam());
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> seen{0};
  std::thread ringer([&] {
    for (int64_t i = 1; i <= kRings; ++i) {
      done.store(i, std::memory_order_relaxed);
      doorbell->Ring();
      while (seen.load(std::memory_order_relaxed) < i) std::this_thread::yield();
    }
  });
  // Every other wait has no end, so that only the ring can end it.
  for (int64_t i = 0; seen < kRings; ++i) {
    doorbell->WaitUntil(i % 2 == 0 ? kForEver
                                   : Doorbell::Clock::now() + nanoseconds(1 + i % 64 * 1000));
    seen.store(done.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  ringer.join();
}

TEST(DoorbellLifeTest, ALateRingIsHarmlessAfterTheWaiterIsGone) {
  auto doorbell = std::make_shared<Doorbell>();
  std::thread ringer([doorbell] {
    for (int i = 0; i < 1000; ++i) doorbell->Ring();
  });
  doorbell->WaitUntil(kForEver);
  doorbell.reset();
  ringer.join();
}

}  // namespace
}  // namespace tetrad
