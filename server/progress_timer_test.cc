// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/progress_timer.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

using std::chrono::seconds;

TEST(ProgressTimerTest, NothingHappensBeforeTheFirstWait) {
  ProgressTimer timer(absl::Nanoseconds(1), [] { FAIL(); });
  EXPECT_TRUE(timer.Resume());
  timer.Stop();
}

TEST(ProgressTimerTest, WhoStandsStillIsNoticedOnceAndForGood) {
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

// It moves all the time, for many times the limit; then it stops.
TEST(ProgressTimerTest, WhoMovesIsLeftAlone) {
  std::promise<Instant> stalled;
  ProgressTimer timer(absl::Milliseconds(200), [&] { stalled.set_value(SteadyNow()); });
  const Instant until = SteadyNow() + 1'000'000'000;
  Instant last = 0;
  int64_t messages = 0;
  while (SteadyNow() < until) {
    last = SteadyNow();
    timer.Wait();
    std::this_thread::yield();
    ASSERT_TRUE(timer.Resume()) << messages;
    ++messages;
  }
  EXPECT_GT(messages, 100);
  last = SteadyNow();
  timer.Wait();
  auto future = stalled.get_future();
  ASSERT_EQ(future.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_GE(future.get() - last, 200'000'000);
}

// Another timer of the same limit, set later, is over; so it had its time.
TEST(ProgressTimerTest, IdleIsNotStalledAndMoreTimeIsGiven) {
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

TEST(ProgressTimerTest, ItsCallbackMayDestroyIt) {
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
TEST(ProgressTimerTest, AfterTheDestructorNothingIsCalled) {
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
