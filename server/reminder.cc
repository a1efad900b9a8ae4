// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/reminder.h"

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

struct Reminder::State {
  absl::AnyInvocable<void()> act;  // guarded by acting
  std::mutex acting;               // held while `act` runs; before mutex
  std::mutex mutex;
  bool stopped = false;                // guarded by mutex
  Instant due = kNever;                // guarded by mutex
  std::unique_ptr<grpc::Alarm> alarm;  // guarded by mutex

  void Ring(Instant of) {
    std::lock_guard one_at_a_time(acting);
    {
      std::lock_guard lock(mutex);
      if (stopped || due != of) return;  // there is another alarm, for an earlier time
      due = kNever;
    }
    act();
  }
};

Reminder::Reminder(absl::AnyInvocable<void()> act) : state_(std::make_shared<State>()) {
  state_->act = std::move(act);
}

Reminder::~Reminder() {
  std::unique_ptr<grpc::Alarm> last;
  std::lock_guard acting(state_->acting);
  std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  last = std::move(state_->alarm);
}

void Reminder::By(Instant due) {
  std::unique_ptr<grpc::Alarm> last;  // cancelled without the lock
  std::lock_guard lock(state_->mutex);
  if (state_->stopped || due >= state_->due) return;
  state_->due = due;
  last = std::exchange(state_->alarm, std::make_unique<grpc::Alarm>());
  state_->alarm->Set(ToTimespec(due), [weak = std::weak_ptr(state_), due](bool rang) {
    if (!rang) return;
    if (const auto state = weak.lock()) state->Ring(due);
  });
}

}  // namespace tetrad
