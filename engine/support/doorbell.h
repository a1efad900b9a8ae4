// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Doorbell: lets any thread wake one waiting thread; rings are not counted.
//
// The waiter may spin for a while before it sleeps. Ring() makes a system call
// only if the waiter sleeps; else it is one atomic exchange.
//
// Ring() is thread-safe, WaitUntil() is for one thread at a time. What a thread
// did before it rang is seen by the waiter that returns. Shared by pointer
// between ringers and the waiter, so that a late ring is harmless after the
// waiter is gone.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "engine/support/spin.h"

namespace tetrad {

class Doorbell {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Doorbell(std::chrono::nanoseconds spin = {}) : spin_(spin) {}

  void Ring() {
    if (state_.exchange(State::kRung, std::memory_order_acq_rel) != State::kAsleep) return;
    // Once the lock was free, the waiter is inside wait() or has seen the ring.
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }

  // Returns once rung since the last return, or at `until`.
  void WaitUntil(Clock::time_point until) {
    if (!Spin(until)) Sleep(until);
    // From here on a ring is one for the next call.
    state_.exchange(State::kQuiet, std::memory_order_acq_rel);
  }

 private:
  enum class State : uint8_t { kQuiet, kRung, kAsleep };

  bool rung() const { return state_.load(std::memory_order_relaxed) == State::kRung; }

  bool Spin(Clock::time_point until) const {
    if (spin_ <= spin_.zero()) return rung();
    return SpinUntil([this] { return rung(); }, std::min(until, Clock::now() + spin_));
  }

  void Sleep(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    State quiet = State::kQuiet;
    if (!state_.compare_exchange_strong(quiet, State::kAsleep, std::memory_order_relaxed)) return;
    const auto rung = [this] { return this->rung(); };
    if (until == Clock::time_point::max()) {
      wake_.wait(lock, rung);
    } else {
      wake_.wait_until(lock, until, rung);
    }
  }

  const std::chrono::nanoseconds spin_;
  std::atomic<State> state_{State::kQuiet};
  std::mutex mutex_;  // between going to sleep and being woken
  std::condition_variable wake_;
};

}  // namespace tetrad
