// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/worker_pool.h"

#include <atomic>
#include <latch>
#include <memory>

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

}  // namespace
}  // namespace tetrad
