// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/worker_pool.h"

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(WorkerPoolTest, DestructorRunsWhatIsQueued) {
  std::atomic<int> ran{0};
  {
    WorkerPool pool("test", 2, 1000);
    for (int i = 0; i < 1000; ++i) {
      while (!pool.Post([&ran] { ++ran; })) std::this_thread::yield();
    }
  }
  EXPECT_EQ(ran.load(), 1000);
}

TEST(WorkerPoolTest, RefusesBeyondCapacityAndKeepsTheJob) {
  std::latch started(1);
  std::latch go(1);
  WorkerPool pool("test", 1, 2);
  ASSERT_TRUE(pool.Post([&] {
    started.count_down();
    go.wait();
  }));
  started.wait();
  EXPECT_TRUE(pool.Post([] {}));
  EXPECT_TRUE(pool.Post([] {}));
  auto held = std::make_unique<int>(7);
  absl::AnyInvocable<void()> job = [held = std::move(held)] { EXPECT_EQ(*held, 7); };
  EXPECT_FALSE(pool.Post(std::move(job)));
  job();
  go.count_down();
}

// A job that is not noticed hangs its poster, which waits for it.
TEST(WorkerPoolTest, EveryJobIsNoticedByThreadsThatSpinOrSleep) {
  using std::chrono::nanoseconds;
  for (const nanoseconds spin : {nanoseconds(0), nanoseconds(1), nanoseconds(2'000),
                                 nanoseconds(50'000), nanoseconds(50'000'000)}) {
    WorkerPool pool("test", 3, 100, spin);
    std::atomic<int> ran{0};
    std::vector<std::jthread> posters;
    for (int p = 0; p < 3; ++p) {
      posters.emplace_back([&] {
        for (int i = 0; i < 400; ++i) {
          std::atomic<bool> done{false};
          ASSERT_TRUE(pool.Post([&] {
            ++ran;
            done.store(true);
          }));
          while (!done.load()) std::this_thread::yield();
        }
      });
    }
    posters.clear();
    EXPECT_EQ(ran.load(), 1'200);
  }
}

TEST(WorkerPoolTest, OnlyAThreadThatSpinsIsHandedAJobDirectly) {
  std::atomic<int> ran{0};
  int handed = 0;
  {
    WorkerPool sleeping("test", 2, 100);
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(sleeping.PostToSpinning([&] { ++ran; }));
    WorkerPool spinning("test", 2, 100, std::chrono::milliseconds(500));
    for (int i = 0; i < 100; ++i) {
      // A thread spins after a job, when there is no other.
      std::atomic<bool> done{false};
      ASSERT_TRUE(spinning.Post([&] { done.store(true); }));
      while (!done.load()) std::this_thread::yield();
      handed += spinning.PostToSpinning([&] { ++ran; });
    }
  }
  EXPECT_GT(handed, 0);
  EXPECT_EQ(ran.load(), handed) << "each that was taken ran once";
}

}  // namespace
}  // namespace tetrad
