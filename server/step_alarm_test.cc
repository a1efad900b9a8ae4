// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/step_alarm.h"

#include <atomic>
#include <latch>
#include <memory>

#include <gtest/gtest.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

constexpr Instant kMillisecond = 1'000'000;

TEST(StepAlarmTest, StepsWhenDueAndAsOftenAsItIsDueAgain) {
  std::latch steps(3);
  std::atomic<int> left = 3;
  std::atomic<Instant> due = SteadyNow() + 5 * kMillisecond;
  StepAlarm alarm([&]() -> Instant {
    const Instant now = SteadyNow();
    if (now < due) return due;  // the alarm's clock is another one
    const int after = --left;
    if (after >= 0) steps.count_down();
    return after > 0 ? (due = now + 5 * kMillisecond) : kNever;
  });
  alarm.Arm(due);
  steps.wait();
}

TEST(StepAlarmTest, AnEarlierInstantReplacesALaterOne) {
  std::latch stepped(1);
  StepAlarm alarm([&] {
    stepped.count_down();
    return kNever;
  });
  alarm.Arm(kNever);
  alarm.Arm(SteadyNow() + 3'600'000 * kMillisecond);
  alarm.Arm(SteadyNow());
  stepped.wait();
}

TEST(StepAlarmTest, NoStepOnceItIsGone) {
  for (int i = 0; i < 200; ++i) {
    auto owned = std::make_unique<int>(7);
    std::atomic<bool> wrong = false;
    {
      StepAlarm alarm([&wrong, raw = owned.get()] {
        if (*raw != 7) wrong = true;
        return SteadyNow();  // due at once, again and again
      });
      alarm.Arm(SteadyNow());
    }
    *owned = 0;
    owned.reset();
    ASSERT_FALSE(wrong);
  }
}

}  // namespace
}  // namespace tetrad
