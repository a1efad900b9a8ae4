// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The executor stepped by hand over a device whose completions the test decides.
#include "engine/executor.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

Instant clock_now = 0;
Instant TestClock() { return clock_now; }

// Accepts launches and completes them only when told to.
class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(int32_t max_in_flight) { limits_.max_in_flight = max_in_flight; }

  std::deque<uint64_t> running;  // tickets, in order of launch
  std::vector<BindingId> launched;
  absl::Status refuse;  // answer of Launch()
  absl::Status state;   // answer of health()

  void Complete(size_t index, Completion completion = {}) {
    completion.ticket = running[index];
    running.erase(running.begin() + static_cast<ptrdiff_t>(index));
    completed_.push_back(completion);
  }

  const DeviceLimits& limits() const override { return limits_; }
  absl::Status Launch(LaneId, BindingId binding, uint64_t ticket) override {
    if (!refuse.ok()) return refuse;
    running.push_back(ticket);
    launched.push_back(binding);
    return absl::OkStatus();
  }
  size_t Poll(std::span<Completion> out) override {
    const size_t count = std::min(out.size(), completed_.size());
    std::copy_n(completed_.begin(), count, out.begin());
    completed_.erase(completed_.begin(), completed_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

  absl::Status health() const override { return state; }

  // The executor uses nothing else of a device.
  MemoryUse memory_use() const override { return {}; }
  ExecutionUse execution_use() const override { return {}; }
  absl::Status MakeReady(const std::shared_ptr<const Plan>&, const BlockRef&,
                         const BlockRef&) override {
    return Unused();
  }
  absl::StatusOr<Allocation> Allocate(int64_t) override { return Unused(); }
  absl::Status Free(AllocationId) override { return Unused(); }
  absl::Status Seal(AllocationId) override { return Unused(); }
  absl::StatusOr<UniqueFd> Export(AllocationId) override { return Unused(); }
  absl::StatusOr<Allocation> Import(UniqueFd, const AllocationIdentity&, int64_t, bool) override {
    return Unused();
  }
  absl::Status Write(AllocationId, int64_t, std::span<const std::byte>) override {
    return Unused();
  }
  absl::Status Fill(AllocationId, int64_t, int64_t, FillSource) override { return Unused(); }
  absl::Status Read(AllocationId, int64_t, std::span<std::byte>) const override { return Unused(); }
  absl::Status Clear(AllocationId, int64_t, int64_t) override { return Unused(); }
  absl::Status PackWeights(const WeightsToPack&) override { return Unused(); }
  absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan>, const OperandBlocks&) override {
    return Unused();
  }
  absl::Status Rebind(BindingId, const OperandBlocks&) override { return Unused(); }
  absl::Status Unbind(BindingId) override { return Unused(); }

 private:
  static absl::Status Unused() { return absl::UnimplementedError("not used by the executor"); }
  DeviceLimits limits_;
  std::deque<Completion> completed_;
};

struct Tracked {
  Launch launch;
  int ended = 0;
};

void CountEnd(Launch* launch) { ++static_cast<Tracked*>(launch->context)->ended; }

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() { clock_now = 1000; }
  void Prepare(Tracked& t, Priority priority = Priority::kNormal, Instant deadline = kNever) {
    t.launch.binding = static_cast<BindingId>(++bindings_);
    t.launch.priority = priority;
    t.launch.deadline = deadline;
    t.launch.done = &CountEnd;
    t.launch.context = &t;
  }
  absl::Status Submit(Tracked& t, Priority priority = Priority::kNormal,
                      Instant deadline = kNever) {
    Prepare(t, priority, deadline);
    return executor_.Submit(&t.launch).status();
  }

  ScriptedDevice device_{2};
  Executor executor_{device_, {.queue_depth = 3, .launch_timeout_ns = 100'000}, &TestClock};
  uint64_t bindings_ = 0;
};

TEST_F(ExecutorTest, LaunchesInOrderAndReportsTimes) {
  Tracked a, b;
  ASSERT_TRUE(Submit(a).ok());
  clock_now = 1010;
  ASSERT_TRUE(Submit(b).ok());
  clock_now = 1020;
  EXPECT_EQ(executor_.Step(), 1020 + 100'000);  // when the device counts as lost
  EXPECT_EQ(device_.launched, (std::vector<BindingId>{a.launch.binding, b.launch.binding}));
  device_.Complete(0, {.error_word = 2, .device_ns = 7});
  clock_now = 1050;
  executor_.Step();
  EXPECT_EQ(a.ended, 1);
  EXPECT_EQ(b.ended, 0);
  EXPECT_EQ(a.launch.outcome, LaunchOutcome::kDone);
  EXPECT_EQ(a.launch.error_word, 2u);
  EXPECT_EQ(a.launch.submitted, 1000);
  EXPECT_EQ(a.launch.launching, 1020);
  EXPECT_EQ(a.launch.completed, 1050);
  EXPECT_EQ(a.launch.device_ns, 7);
  device_.Complete(0);
  executor_.Step();
  EXPECT_EQ(b.ended, 1);
  EXPECT_TRUE(executor_.idle());
}

TEST_F(ExecutorTest, QueueIsBoundedAndHighPriorityGoesFirst) {
  Tracked t[6];
  ASSERT_TRUE(Submit(t[0]).ok());
  ASSERT_TRUE(Submit(t[1]).ok());
  executor_.Step();  // both on the device, which is now full
  ASSERT_TRUE(Submit(t[2], Priority::kLow).ok());
  ASSERT_TRUE(Submit(t[3], Priority::kNormal).ok());
  ASSERT_TRUE(Submit(t[4], Priority::kHigh).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(executor_.Admissible()));
  EXPECT_TRUE(absl::IsResourceExhausted(Submit(t[5])));
  EXPECT_EQ(executor_.stats().queued, 3);
  EXPECT_EQ(executor_.stats().on_device, 2);
  for (const int expected : {4, 3, 2}) {
    device_.Complete(0);
    executor_.Step();
    EXPECT_EQ(device_.launched.back(), t[expected].launch.binding);
  }
  device_.Complete(0);
  device_.Complete(0);
  executor_.Step();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(t[i].ended, 1);
  EXPECT_EQ(t[5].ended, 0);
}

TEST_F(ExecutorTest, AFullQueueOfWhichNothingIsPredictedSaysLittle) {
  Tracked t[5];
  const auto delay = [this] {
    const std::optional<ErrorDetail> detail = DetailOf(executor_.Admissible());
    EXPECT_TRUE(detail.has_value() && detail->reason == Reason::kQueueFull);
    return detail.value_or(ErrorDetail{}).retry_delay;
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Submit(t[i]).ok());
  EXPECT_EQ(delay(), absl::ZeroDuration()) << "the device has nothing";
  executor_.Step();
  for (int i = 3; i < 5; ++i) ASSERT_TRUE(Submit(t[i]).ok());
  EXPECT_EQ(delay(), absl::Milliseconds(1)) << "to come back at once helps nobody";
}

TEST_F(ExecutorTest, TheDelayOfAFullQueueShrinksAsTheLaunchRuns) {
  Executor executor(device_, {.queue_depth = 1}, &TestClock);
  Tracked t[3];
  for (Tracked& tracked : t) {
    Prepare(tracked);
    tracked.launch.predicted_ns = 80'000'000;
  }
  for (Tracked& tracked : t) {
    ASSERT_TRUE(executor.Submit(&tracked.launch).ok());
    executor.Step();
  }
  const auto delay = [&] { return DetailOf(executor.Admissible())->retry_delay; };
  EXPECT_EQ(delay(), absl::Milliseconds(80));
  clock_now += 30'000'000;
  EXPECT_EQ(delay(), absl::Milliseconds(50));
  clock_now += 49'000'000;
  EXPECT_EQ(delay(), absl::Milliseconds(10)) << "late ones may be so for long";
  clock_now += 10'000'000'000;
  EXPECT_EQ(delay(), absl::Milliseconds(10));
  device_.Complete(0);
  executor.Step();
  EXPECT_TRUE(executor.Admissible().ok());
}

TEST_F(ExecutorTest, DeadlinesEndQueuedLaunchesAndVoidLateResults) {
  Tracked running[2], queued, late;
  ASSERT_TRUE(Submit(running[0], Priority::kNormal, 3000).ok());
  ASSERT_TRUE(Submit(running[1]).ok());
  executor_.Step();
  ASSERT_TRUE(Submit(queued, Priority::kNormal, 2000).ok());
  ASSERT_TRUE(Submit(late, Priority::kNormal, 900).ok());  // past already
  EXPECT_EQ(executor_.Step(), 2000);
  EXPECT_EQ(late.launch.outcome, LaunchOutcome::kDeadlineExceeded);
  clock_now = 2000;
  EXPECT_EQ(executor_.Step(), 1000 + 100'000);
  EXPECT_EQ(queued.ended, 1);
  EXPECT_EQ(queued.launch.outcome, LaunchOutcome::kDeadlineExceeded);
  clock_now = 3000;
  device_.Complete(0);
  device_.Complete(0);
  executor_.Step();
  EXPECT_EQ(running[0].launch.outcome, LaunchOutcome::kDeadlineExceeded);
  EXPECT_EQ(running[1].launch.outcome, LaunchOutcome::kDone);
  EXPECT_EQ(device_.launched.size(), 2u);
}

TEST_F(ExecutorTest, CancelBeforeLaunchDropsAndAfterLaunchDiscards) {
  Tracked running[2], queued;
  ASSERT_TRUE(Submit(running[0]).ok());
  ASSERT_TRUE(Submit(running[1]).ok());
  executor_.Step();
  ASSERT_TRUE(Submit(queued).ok());
  executor_.Cancel(&queued.launch);
  executor_.Cancel(&running[1].launch);
  executor_.Step();
  EXPECT_EQ(queued.launch.outcome, LaunchOutcome::kCancelled);
  EXPECT_EQ(queued.ended, 1);
  EXPECT_EQ(running[1].ended, 0);  // its memory is in use until the device is done
  device_.Complete(1);
  executor_.Step();
  EXPECT_EQ(running[1].launch.outcome, LaunchOutcome::kCancelled);
  executor_.Cancel(&running[1].launch);  // too late: no effect
  device_.Complete(0);
  executor_.Step();
  EXPECT_EQ(running[1].ended, 1);
}

TEST_F(ExecutorTest, RefusalAndFailureEndOnlyTheirLaunch) {
  Tracked refused, failed, good;
  device_.refuse = absl::AbortedError("stale");
  ASSERT_TRUE(Submit(refused).ok());
  executor_.Step();
  EXPECT_EQ(refused.launch.outcome, LaunchOutcome::kRefused);
  EXPECT_EQ(refused.launch.code, absl::StatusCode::kAborted);
  device_.refuse = absl::OkStatus();
  ASSERT_TRUE(Submit(failed).ok());
  ASSERT_TRUE(Submit(good).ok());
  executor_.Step();
  device_.Complete(0, {.code = absl::StatusCode::kInternal});
  device_.Complete(0);
  executor_.Step();
  EXPECT_EQ(failed.launch.outcome, LaunchOutcome::kFailed);
  EXPECT_EQ(good.launch.outcome, LaunchOutcome::kDone);
}

TEST_F(ExecutorTest, ADeviceFullForNowIsAskedAgain) {
  Tracked a, b;
  ASSERT_TRUE(Submit(a).ok());
  executor_.Step();
  device_.refuse = absl::ResourceExhaustedError("full");
  ASSERT_TRUE(Submit(b).ok());
  executor_.Step();
  EXPECT_EQ(b.ended, 0);
  device_.refuse = absl::OkStatus();
  device_.Complete(0);
  executor_.Step();
  EXPECT_EQ(device_.launched.back(), b.launch.binding);
}

TEST_F(ExecutorTest, CloseEndsQueuedAndWaitsForTheDevice) {
  Tracked running[2], queued, after;
  ASSERT_TRUE(Submit(running[0]).ok());
  ASSERT_TRUE(Submit(running[1]).ok());
  executor_.Step();
  ASSERT_TRUE(Submit(queued).ok());
  executor_.Close();
  EXPECT_TRUE(absl::IsUnavailable(executor_.Admissible()));
  EXPECT_TRUE(absl::IsUnavailable(Submit(after)));
  executor_.Step();
  EXPECT_EQ(queued.launch.outcome, LaunchOutcome::kShutDown);
  EXPECT_FALSE(executor_.idle());
  device_.Complete(1);
  device_.Complete(0);
  executor_.Step();
  EXPECT_TRUE(executor_.idle());
  EXPECT_EQ(running[0].launch.outcome, LaunchOutcome::kDone);
}

TEST_F(ExecutorTest, ALostDeviceEndsEverythingTypedAndTakesNothingMore) {
  Tracked running[2], queued, after;
  ASSERT_TRUE(Submit(running[0]).ok());
  ASSERT_TRUE(Submit(running[1]).ok());
  executor_.Step();
  ASSERT_TRUE(Submit(queued, Priority::kLow, 5000).ok());
  EXPECT_TRUE(executor_.lost().ok());
  device_.state = absl::InternalError("illegal address");
  EXPECT_EQ(executor_.Step(), kNever);
  for (const Tracked* t : {&running[0], &running[1], &queued}) {
    EXPECT_EQ(t->ended, 1);
    EXPECT_EQ(t->launch.outcome, LaunchOutcome::kDeviceLost);
  }
  EXPECT_EQ(executor_.lost(), device_.state);
  EXPECT_TRUE(absl::IsUnavailable(Submit(after)));
  EXPECT_TRUE(executor_.idle());
  device_.Complete(0);  // too late: its launch has ended
  executor_.Step();
  EXPECT_EQ(running[0].ended, 1);
}

TEST_F(ExecutorTest, ACompletionThatNeverComesMeansALostDevice) {
  Tracked first, second;
  ASSERT_TRUE(Submit(first).ok());
  executor_.Step();
  clock_now += 60'000;
  ASSERT_TRUE(Submit(second).ok());
  executor_.Step();
  clock_now += 39'999;
  EXPECT_EQ(executor_.Step(), clock_now + 1);
  device_.Complete(0);  // just in time; the second one's time begins now
  executor_.Step();
  EXPECT_EQ(first.launch.outcome, LaunchOutcome::kDone);
  clock_now += 99'999;
  EXPECT_EQ(executor_.Step(), clock_now + 1);
  EXPECT_EQ(second.ended, 0);
  ++clock_now;
  executor_.Step();
  EXPECT_EQ(second.launch.outcome, LaunchOutcome::kDeviceLost);
  EXPECT_TRUE(absl::IsInternal(executor_.lost()));
  EXPECT_TRUE(absl::IsUnavailable(executor_.Admissible()));
}

// A large launch is not a lost device: who sends one must not end the daemon.
TEST_F(ExecutorTest, LongLaunchesHaveMoreTime) {
  Tracked t;
  Prepare(t);
  t.launch.predicted_ns = 1'000'000;
  ASSERT_TRUE(executor_.Submit(&t.launch).ok());
  executor_.Step();
  clock_now += 100'000 + Executor::kOverrun * 1'000'000 - 1;
  EXPECT_EQ(executor_.Step(), clock_now + 1);
  EXPECT_EQ(t.ended, 0);
  ++clock_now;
  executor_.Step();
  EXPECT_EQ(t.launch.outcome, LaunchOutcome::kDeviceLost);
}

TEST_F(ExecutorTest, ALaunchThatALostDeviceRefusedEndsAsLost) {
  Tracked t;
  device_.refuse = absl::InternalError("illegal address");
  ASSERT_TRUE(Submit(t).ok());
  executor_.Step();  // refused by a device that is well otherwise
  EXPECT_EQ(t.launch.outcome, LaunchOutcome::kRefused);
  Tracked u;
  ASSERT_TRUE(Submit(u).ok());
  device_.state = device_.refuse;
  executor_.Step();
  EXPECT_EQ(u.launch.outcome, LaunchOutcome::kDeviceLost);
}

// What waits in the executor can still be overtaken; what the device has cannot.
TEST(ExecutorRunAheadTest, LongLaunchesWaitWhereTheyCanBeOvertaken) {
  clock_now = 0;
  ScriptedDevice device(8);
  Executor executor(device, {.queue_depth = 16, .run_ahead_ns = 1000}, &TestClock);
  Tracked t[10];
  const auto submit = [&](int i, int64_t predicted, Priority priority) {
    t[i].launch.binding = static_cast<BindingId>(i + 1);
    t[i].launch.predicted_ns = predicted;
    t[i].launch.priority = priority;
    t[i].launch.done = &CountEnd;
    t[i].launch.context = &t[i];
    ASSERT_TRUE(executor.Submit(&t[i].launch).ok());
  };
  for (int i = 0; i < 4; ++i) submit(i, 700, Priority::kNormal);
  executor.Step();
  EXPECT_EQ(device.running.size(), 2u);  // one runs, one waits
  submit(4, 700, Priority::kHigh);
  device.Complete(0);
  executor.Step();
  EXPECT_EQ(device.launched.back(), t[4].launch.binding);
  // Short ones fill the time ahead, up to the device's own limit.
  for (int i = 0; i < 3; ++i) {
    device.Complete(0);
    executor.Step();
  }
  device.Complete(0);
  executor.Step();
  ASSERT_TRUE(executor.idle());
  for (int i = 5; i < 10; ++i) submit(i, 250, Priority::kNormal);
  executor.Step();
  EXPECT_EQ(device.running.size(), 4u);
  while (!executor.idle()) {
    while (!device.running.empty()) device.Complete(0);
    executor.Step();
  }
  for (const Tracked& one : t) EXPECT_EQ(one.ended, 1);
}

// Random interleavings of every event: each accepted launch ends exactly once,
// a cancelled or late one never as done, and nothing is left over.
TEST(ExecutorRandomTest, EveryLaunchEndsOnceWhateverTheOrder) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    clock_now = 0;
    ScriptedDevice device(1 + static_cast<int32_t>(random() % 4));
    Executor executor(device, {.queue_depth = 5}, &TestClock);
    std::deque<Tracked> all;
    std::vector<Tracked*> accepted;
    std::vector<bool> cancelled;
    for (int event = 0; event < 200; ++event) {
      clock_now += static_cast<Instant>(random() % 3);
      switch (random() % 6) {
        case 0:
        case 1: {
          Tracked& t = all.emplace_back();
          t.launch.priority = static_cast<Priority>(random() % kPriorities);
          t.launch.deadline =
              random() % 2 == 0 ? kNever : clock_now + static_cast<Instant>(random() % 20);
          t.launch.done = &CountEnd;
          t.launch.context = &t;
          if (executor.Submit(&t.launch).ok()) {
            accepted.push_back(&t);
            cancelled.push_back(false);
          }
          break;
        }
        case 2:
          if (!accepted.empty()) {
            const size_t i = random() % accepted.size();
            if (accepted[i]->ended == 0) {
              executor.Cancel(&accepted[i]->launch);
              cancelled[i] = true;
            }
          }
          break;
        case 3:
          if (!device.running.empty()) device.Complete(random() % device.running.size());
          break;
        default:
          executor.Step();
      }
    }
    executor.Close();
    while (!executor.idle()) {
      executor.Step();
      while (!device.running.empty()) device.Complete(0);
    }
    executor.Step();
    for (size_t i = 0; i < accepted.size(); ++i) {
      const Launch& launch = accepted[i]->launch;
      ASSERT_EQ(accepted[i]->ended, 1) << i;
      if (launch.outcome == LaunchOutcome::kDone) {
        ASSERT_FALSE(cancelled[i]) << i;
        ASSERT_LT(launch.completed, launch.deadline);
      }
    }
    ASSERT_EQ(executor.stats().queued, 0);
    ASSERT_EQ(executor.stats().on_device, 0);
  }
}

// Hands over at Submit(), and has Step() called once in 50,000 ns.
class LaunchAtSubmitTest : public ExecutorTest {
 protected:
  absl::StatusOr<bool> SubmitNow(Tracked& t, Priority priority = Priority::kNormal,
                                 Instant deadline = kNever) {
    Prepare(t, priority, deadline);
    return now_.Submit(&t.launch);
  }
  Executor now_{device_,
                {.queue_depth = 8,
                 .launch_timeout_ns = 100'000,
                 .launch_at_submit = true,
                 .step_interval_ns = 50'000},
                &TestClock};
};

TEST_F(LaunchAtSubmitTest, TheDeviceHasItBeforeAnyStep) {
  Tracked t;
  ASSERT_TRUE(SubmitNow(t).ok());
  EXPECT_EQ(device_.running.size(), 1u);
  device_.Complete(0);
  EXPECT_EQ(t.ended, 0) << "only Step() ends launches";
  now_.Step();
  EXPECT_EQ(t.ended, 1);
  EXPECT_EQ(t.launch.outcome, LaunchOutcome::kDone);
}

TEST_F(LaunchAtSubmitTest, StepIsAskedForOnlyIfItIsDueEarlier) {
  Tracked t[5];
  EXPECT_EQ(now_.Step(), 1000 + 50'000);
  clock_now = 40'000;
  EXPECT_FALSE(*SubmitNow(t[0])) << "its time limit is later than the next step";
  EXPECT_FALSE(*SubmitNow(t[1]));
  EXPECT_EQ(device_.running.size(), 2u);
  EXPECT_FALSE(*SubmitNow(t[2], Priority::kNormal, 60'000)) << "waits, late after the next step";
  EXPECT_TRUE(*SubmitNow(t[3], Priority::kNormal, 45'000));
  EXPECT_EQ(device_.running.size(), 2u) << "what does not fit waits";
  EXPECT_EQ(now_.Step(), 45'000);
  EXPECT_FALSE(*SubmitNow(t[4], Priority::kNormal, 46'000));
}

TEST_F(LaunchAtSubmitTest, WhatWaitsIsNotOvertaken) {
  Tracked t[4];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(SubmitNow(t[i]).ok());
  device_.Complete(0);  // there is room, of which the executor does not know yet
  ASSERT_TRUE(SubmitNow(t[3], Priority::kHigh).ok());
  now_.Step();
  EXPECT_EQ(device_.launched.back(), t[3].launch.binding);
  device_.Complete(0);
  now_.Step();
  EXPECT_EQ(device_.launched.back(), t[2].launch.binding);
}

TEST_F(LaunchAtSubmitTest, WhatIsLateIsNotLaunchedThoughTheStepIsLateToo) {
  Tracked first, late, other;
  ASSERT_TRUE(SubmitNow(first).ok());
  device_.refuse = absl::ResourceExhaustedError("for now");
  ASSERT_TRUE(SubmitNow(late, Priority::kNormal, 2000).ok());
  device_.refuse = absl::OkStatus();
  clock_now = 2000;
  EXPECT_TRUE(*SubmitNow(other));
  EXPECT_EQ(device_.launched.back(), other.launch.binding);
  EXPECT_EQ(device_.launched.size(), 2u);
  now_.Step();
  EXPECT_EQ(late.launch.outcome, LaunchOutcome::kDeadlineExceeded);
}

TEST_F(LaunchAtSubmitTest, WhatTheDeviceRefusesEndsAtTheStepAskedFor) {
  now_.Step();
  Tracked t, other;
  device_.refuse = absl::InternalError("this one");
  EXPECT_TRUE(*SubmitNow(t));
  EXPECT_EQ(t.ended, 0);
  device_.refuse = absl::OkStatus();
  now_.Step();
  EXPECT_EQ(t.launch.outcome, LaunchOutcome::kRefused);
  device_.refuse = device_.state = absl::InternalError("lost");
  EXPECT_TRUE(*SubmitNow(other));
  now_.Step();
  EXPECT_EQ(other.launch.outcome, LaunchOutcome::kDeviceLost);
}

}  // namespace
}  // namespace tetrad
