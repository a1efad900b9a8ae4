// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/reminder.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

constexpr int64_t kMs = 1'000'000;

// What was called, and when.
class Calls {
 public:
  void Add() {
    std::lock_guard lock(mutex_);
    ++count_;
    last_ = SteadyNow();
    more_.notify_all();
  }
  // When the `count`th call was.
  Instant WaitFor(int count) {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return count_ >= count; });
    return last_;
  }
  int count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  int count_ = 0;
  Instant last_ = 0;
};

TEST(ReminderTest, CallsNotBeforeTheTimeAndOnce) {
  Calls calls;
  Reminder reminder([&] { calls.Add(); });
  reminder.By(kNever);
  const Instant due = SteadyNow() + 30 * kMs;
  reminder.By(due);
  EXPECT_GE(calls.WaitFor(1), due);
  const Instant next = SteadyNow() + 30 * kMs;
  reminder.By(next);
  EXPECT_GE(calls.WaitFor(2), next);
  EXPECT_EQ(calls.count(), 2);
}

TEST(ReminderTest, TheEarliestTimeCounts) {
  Calls calls;
  Reminder reminder([&] { calls.Add(); });
  const Instant begin = SteadyNow();
  reminder.By(begin + 3'600'000 * kMs);
  reminder.By(begin + 20 * kMs);
  reminder.By(begin + 7'200'000 * kMs);
  EXPECT_GE(calls.WaitFor(1), begin + 20 * kMs);
}

TEST(ReminderTest, MayBeAskedFromWithin) {
  Calls calls;
  Reminder* self = nullptr;
  Reminder reminder([&] {
    calls.Add();
    if (calls.count() < 5) self->By(SteadyNow());
  });
  self = &reminder;
  reminder.By(0);
  calls.WaitFor(5);
}

TEST(ReminderTest, NothingIsCalledOnceItIsGone) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> alive{true};
    std::atomic<bool> late{false};
    {
      Reminder reminder([&] { late = late || !alive; });
      reminder.By(SteadyNow() + i % 4 * kMs / 2);
    }
    alive = false;
    EXPECT_FALSE(late);
  }
}

}  // namespace
}  // namespace tetrad
