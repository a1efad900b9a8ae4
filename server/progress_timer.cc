// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/progress_timer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include "engine/steady_clock.h"

namespace tetrad {
namespace {

constexpr Instant kStalled = -1;

gpr_timespec FromNow(int64_t nanoseconds) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

}  // namespace

// What an alarm that fires late may still touch.
struct ProgressTimer::State {
  State(int64_t limit, Stalled callback) : limit_ns(limit), stalled(std::move(callback)) {}
  static void Set(const std::shared_ptr<State>& state, int64_t nanoseconds);
  static void Fire(const std::shared_ptr<State>& state);

  const int64_t limit_ns;
  std::atomic<Instant> due{kNever};  // when the client is too late
  // Recursive: `stalled` may end in the destructor of the timer.
  std::recursive_mutex mutex;
  Stalled stalled;                   // called with the mutex
  bool stopped = false;              // guarded by mutex
  std::optional<grpc::Alarm> alarm;  // guarded by mutex
};

void ProgressTimer::State::Set(const std::shared_ptr<State>& state, int64_t nanoseconds) {
  std::lock_guard lock(state->mutex);
  if (state->stopped) return;
  // A new one: an alarm may not be set again in its own callback.
  state->alarm.emplace();
  state->alarm->Set(FromNow(nanoseconds), [state](bool fired) {
    if (fired) Fire(state);
  });
}

void ProgressTimer::State::Fire(const std::shared_ptr<State>& state) {
  const Instant now = SteadyNow();
  Instant due = state->due.load(std::memory_order_acquire);
  if (due <= now && state->due.compare_exchange_strong(due, kStalled, std::memory_order_acq_rel)) {
    std::lock_guard lock(state->mutex);
    if (!state->stopped) state->stalled();
    return;
  }
  // No wait that begins from now on can be over earlier.
  Set(state, std::min(due - now, state->limit_ns));
}

ProgressTimer::ProgressTimer(absl::Duration limit, Stalled stalled)
    : limit_ns_(absl::ToInt64Nanoseconds(limit)), stalled_(std::move(stalled)) {}

void ProgressTimer::Wait(absl::Duration extra) {
  const int64_t wait_ns = limit_ns_ + absl::ToInt64Nanoseconds(extra);
  const bool first = state_ == nullptr;
  if (first) state_ = std::make_shared<State>(limit_ns_, std::move(stalled_));
  state_->due.store(After(SteadyNow(), wait_ns), std::memory_order_release);
  if (first) State::Set(state_, limit_ns_);
}

bool ProgressTimer::Resume() {
  if (state_ == nullptr) return true;
  if (state_->due.exchange(kNever, std::memory_order_acq_rel) != kStalled) return true;
  state_->due.store(kStalled, std::memory_order_relaxed);  // that stays
  return false;
}

void ProgressTimer::Stop() {
  if (state_ == nullptr) return;
  std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->alarm.reset();
}

}  // namespace tetrad
