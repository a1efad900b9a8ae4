// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Launch: one use of a binding, from the queue through the device to its end.
// Plain values, and the links by which executor and queue hold it, so that
// queueing allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "engine/device.h"
#include "engine/support/instant.h"

namespace tetrad {

enum class Priority : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };
inline constexpr size_t kPriorities = 3;

enum class LaunchOutcome : uint8_t {
  kDone,              // ran; error_word may be set
  kRefused,           // the device refused it; `code` says how
  kFailed,            // the device started it and reports failure
  kDeadlineExceeded,  // not run, or ran and its result is not to be used
  kCancelled,         // as above
  kShutDown,          // not run: the executor is being closed
  kDeviceLost,        // not run, or it is not known whether it ran
};
inline constexpr size_t kLaunchOutcomes = 7;

// Among whom the device's time is shared out, each in proportion to its weight.
struct Flow {
  uint64_t id = 0;
  int32_t weight = 1;  // 1 to kMaxFlowWeight
};
inline constexpr int32_t kMaxFlowWeight = 1000;

struct Launch {
  BindingId binding = BindingId::kNone;
  LaneId lane{};
  int64_t predicted_ns = 0;  // on the device, at best
  Priority priority = Priority::kNormal;
  Flow flow;
  Instant deadline = kNever;
  void (*done)(Launch*) = nullptr;
  void* context = nullptr;

  // Filled before `done`.
  LaunchOutcome outcome = LaunchOutcome::kDone;
  absl::StatusCode code = absl::StatusCode::kOk;
  uint32_t error_word = 0;
  Instant submitted = 0;  // by Executor::Submit()
  Instant launching = 0;  // just before the device was given it
  Instant launched = 0;   // just after
  Instant completed = 0;  // when its completion was seen
  int64_t device_ns = 0;

 private:
  friend class Executor;
  friend class LaunchList;
  friend class LaunchQueue;
  enum class State : uint8_t { kIdle, kQueued, kOnDevice };
  State state_ = State::kIdle;
  bool cancelled_ = false;
  uint32_t slot_ = 0;
  uint32_t place_ = 0;       // among the deadlines of queued launches
  uint64_t arrival_ = 0;     // counts what was queued
  uint32_t queue_flow_ = 0;  // of the queue it is in
  Launch* next_ = nullptr;
  Launch* previous_ = nullptr;
};

// A launch is in one list at a time.
class LaunchList {
 public:
  Launch* head() const { return head_; }
  bool empty() const { return head_ == nullptr; }
  void Append(Launch* launch) {
    launch->previous_ = tail_;
    launch->next_ = nullptr;
    (tail_ != nullptr ? tail_->next_ : head_) = launch;
    tail_ = launch;
  }
  void Remove(Launch* launch) {
    (launch->previous_ != nullptr ? launch->previous_->next_ : head_) = launch->next_;
    (launch->next_ != nullptr ? launch->next_->previous_ : tail_) = launch->previous_;
    launch->next_ = launch->previous_ = nullptr;
  }

 private:
  Launch* head_ = nullptr;
  Launch* tail_ = nullptr;
};

}  // namespace tetrad
