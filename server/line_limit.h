// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LineLimit: how many log lines of one kind are written, so that whoever can
// cause them cannot fill a disk: a burst, and then one every so often. What is
// left out is counted and told by the next line that is written.
//
// A step function of injected time. Thread-safe; cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/time/time.h"

namespace tetrad {

class LineLimit {
 public:
  LineLimit(int64_t burst, absl::Duration interval)
      : burst_(burst), interval_(interval), left_(burst) {}

  // How many lines were left out before this one, if it is to be written.
  std::optional<int64_t> Take(absl::Time now) {
    const std::lock_guard lock(mutex_);
    if (left_ == burst_) refilled_ = now;
    absl::Duration rest;
    const int64_t more =
        std::max<int64_t>(absl::IDivDuration(now - refilled_, interval_, &rest), 0);
    if (more > 0) {
      left_ = more >= burst_ - left_ ? burst_ : left_ + more;
      refilled_ = now - rest;
    }
    if (left_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    --left_;
    const int64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  const int64_t burst_;
  const absl::Duration interval_;
  std::mutex mutex_;
  int64_t left_;                                // guarded by mutex_
  int64_t left_out_ = 0;                        // guarded by mutex_
  absl::Time refilled_ = absl::InfinitePast();  // guarded by mutex_
};

}  // namespace tetrad
