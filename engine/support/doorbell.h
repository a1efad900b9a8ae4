// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Doorbell: lets any thread wake one waiting thread; rings are not counted.
//
// Shared by pointer between ringers and the waiter, so that a late ring is
// harmless after the waiter is gone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tetrad {

class Doorbell {
 public:
  void Ring() {
    {
      std::lock_guard lock(mutex_);
      rung_ = true;
    }
    wake_.notify_one();
  }

  // Returns once rung since the last return, or at `until` of the steady clock.
  void WaitUntil(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    const auto rung = [this] { return rung_; };
    if (until == std::chrono::steady_clock::time_point::max()) {
      wake_.wait(lock, rung);
    } else {
      wake_.wait_until(lock, until, rung);
    }
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;  // guarded by mutex_
};

}  // namespace tetrad
