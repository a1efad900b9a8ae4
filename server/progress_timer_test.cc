// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/progress_timer.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

using std::chrono::seconds;

class ProgressTimerTest : public ::testing::Test {
 protected:
  // As in the daemon: the library does not end with the last timer.
  static void SetUpTestSuite() { grpc_init(); }
};

TEST_F(ProgressTimerTest, NothingHappensBeforeTheFirstWait) {
  ProgressTimer timer(absl::Nanoseconds(1), [] { FAIL(); });
  EXPECT_TRUE(timer.Resume());
  timer.Stop();
}

TEST_F(ProgressTimerTest, WhoStandsStillIsNoticedOnceAndForGood) {
  std::promise<Instant> stalled;
  ProgressTimer timer(absl::Milliseconds(30), [&] { stalled.set_value(SteadyNow()); });
  const Instant began = SteadyNow();
  timer.Wait();
  auto future = stalled.get_future();
  ASSERT_EQ(future.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_GE(future.get() - began, 30'000'000);
  EXPECT_FALSE(timer.Resume());
  EXPECT_FALSE(timer.Resume());
}

// Moves all the time, for many times the limit. False if the machine stood still
// for the limit, of which nothing follows.
bool MovesForLong(ProgressTimer& timer, int64_t limit) {
  const Instant until = SteadyNow() + 5 * limit;
  while (SteadyNow() < until) {
    const Instant began = SteadyNow();
    timer.Wait();
    const bool moved = timer.Resume();
    if (!moved && SteadyNow() - began >= limit) return false;
    EXPECT_TRUE(moved);
  }
  return true;
}

TEST_F(ProgressTimerTest, WhoMovesIsLeftAlone) {
  constexpr int64_t kLimit = 200'000'000;
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::promise<Instant> stalled;
    ProgressTimer timer(absl::Nanoseconds(kLimit), [&] { stalled.set_value(SteadyNow()); });
    if (!MovesForLong(timer, kLimit)) continue;
    // Then it stops.
    const Instant began = SteadyNow();
    timer.Wait();
    auto future = stalled.get_future();
    ASSERT_EQ(future.wait_for(seconds(20)), std::future_status::ready);
    EXPECT_GE(future.get() - began, kLimit);
    return;
  }
  FAIL() << "the machine stood still each time";
}

// Another timer of the same limit, set later, is over; so it had its time.
TEST_F(ProgressTimerTest, IdleIsNotStalledAndMoreTimeIsGiven) {
  std::atomic<int> stalled{0};
  ProgressTimer idle(absl::Milliseconds(20), [&] { ++stalled; });
  ProgressTimer patient(absl::Milliseconds(20), [&] { ++stalled; });
  idle.Wait();
  EXPECT_TRUE(idle.Resume());
  patient.Wait(absl::Hours(1));
  for (int i = 0; i < 5; ++i) {
    std::promise<void> later;
    ProgressTimer other(absl::Milliseconds(30), [&] { later.set_value(); });
    other.Wait();
    ASSERT_EQ(later.get_future().wait_for(seconds(20)), std::future_status::ready);
  }
  EXPECT_EQ(stalled, 0);
  EXPECT_TRUE(patient.Resume());
  EXPECT_TRUE(idle.Resume());
}

TEST_F(ProgressTimerTest, ItsCallbackMayDestroyIt) {
  std::promise<void> gone;
  std::unique_ptr<ProgressTimer> timer;
  timer = std::make_unique<ProgressTimer>(absl::Milliseconds(1), [&] {
    timer.reset();
    gone.set_value();
  });
  timer->Wait();
  ASSERT_EQ(gone.get_future().wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(timer, nullptr);
}

// Timers that end at the very moment at which they are over.
TEST_F(ProgressTimerTest, AfterTheDestructorNothingIsCalled) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        auto alive = std::make_unique<std::atomic<int>>(0);
        bool moved = false;
        {
          ProgressTimer timer(absl::Microseconds(500), [&alive] { ++*alive; });
          timer.Wait();
          std::this_thread::sleep_for(std::chrono::microseconds((t * 500 + i) % 2000));
          moved = timer.Resume();
        }
        ASSERT_EQ(*alive > 0, !moved && *alive == 1);
        alive.reset();
      }
    });
  }
}

}  // namespace
}  // namespace tetrad
