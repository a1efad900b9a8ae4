// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/step_alarm.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

// The library's timers count milliseconds, and may round down.
constexpr int64_t kSlackNs = 1'000'000;

gpr_timespec ToTimespec(Instant due) {
  const int64_t left = std::max<int64_t>(due - SteadyNow(), 0) + kSlackNs;
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left, GPR_TIMESPAN));
}

}  // namespace

// An alarm's callback may come after the StepAlarm is gone, and then finds no state.
struct StepAlarm::State : std::enable_shared_from_this<State> {
  explicit State(std::function<Instant()> s) : step(std::move(s)) {}

  void Rang();
  // Needs mutex.
  void Arm(Instant at);

  const std::function<Instant()> step;
  std::mutex stepping;  // held while the step runs; taken before mutex
  std::mutex mutex;
  std::unique_ptr<grpc::Alarm> alarm;  // guarded by mutex
  Instant due = kNever;                // of the alarm; guarded by mutex
  bool stopped = false;                // guarded by mutex
};

void StepAlarm::State::Arm(Instant at) {
  if (stopped || at >= due) return;
  due = at;
  // A new one each time: one that rings must not be set again from its callback.
  alarm = std::make_unique<grpc::Alarm>();
  alarm->Set(ToTimespec(at), [weak = weak_from_this()](bool rang) {
    if (!rang) return;
    if (const auto state = weak.lock()) state->Rang();
  });
}

void StepAlarm::State::Rang() {
  std::lock_guard one_at_a_time(stepping);
  {
    std::lock_guard lock(mutex);
    if (stopped) return;
    due = kNever;
  }
  const Instant next = step();
  std::lock_guard lock(mutex);
  Arm(next);
}

StepAlarm::StepAlarm(std::function<Instant()> step)
    : state_(std::make_shared<State>(std::move(step))) {}

StepAlarm::~StepAlarm() {
  std::lock_guard no_step(state_->stepping);
  std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->alarm.reset();
}

void StepAlarm::Arm(Instant due) {
  std::lock_guard lock(state_->mutex);
  state_->Arm(due);
}

}  // namespace tetrad
