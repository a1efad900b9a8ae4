// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Executor: bounded queues in front of a device, as a step function.
//
// Submit() queues a launch, Step() moves everything that can move at that
// instant: it ends launches whose deadline passed or that were cancelled,
// hands the device as many as it takes (high priority first, then in order of
// arrival), and collects completions. No threads, no clock and no sockets
// here: executor_thread.h drives it in the daemon, tests drive it by hand.
//
// A Launch belongs to the caller, who keeps it alive and does not touch it
// from Submit() until `done` was called, exactly once, by Step(). In steady
// state nothing here allocates. Submit() and Cancel() are thread-safe; Step()
// is for one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

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

struct Launch {
  BindingId binding = BindingId::kNone;
  LaneId lane{};
  Priority priority = Priority::kNormal;
  Instant deadline = kNever;
  void (*done)(Launch*) = nullptr;
  void* context = nullptr;

  // Filled before `done`.
  LaunchOutcome outcome = LaunchOutcome::kDone;
  absl::StatusCode code = absl::StatusCode::kOk;
  uint32_t error_word = 0;
  Instant submitted = 0;  // by Submit()
  Instant launching = 0;  // just before the device was given it
  Instant launched = 0;   // just after
  Instant completed = 0;  // when its completion was seen
  int64_t device_ns = 0;

 private:
  friend class Executor;
  enum class State : uint8_t { kIdle, kQueued, kOnDevice };
  State state_ = State::kIdle;
  bool cancelled_ = false;
  Launch* next_ = nullptr;
  Launch* previous_ = nullptr;
  uint32_t slot_ = 0;
};

struct ExecutorStats {
  int64_t queued = 0;
  int64_t on_device = 0;
};

class Executor {
 public:
  // Reads the clock whose instants Submit() and Step() are given.
  using Clock = Instant (*)();

  Executor(Device& device, int64_t queue_depth, Clock clock);

  // RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE after Close().
  absl::Status Submit(Launch* launch);
  // What Submit() would say now: asked before work that a refusal would waste.
  absl::Status Admissible() const;
  // Before hand-over: ends it with kCancelled at the next step. On the device:
  // its result is dropped and it ends with kCancelled when it completes.
  void Cancel(Launch* launch);
  // Does all that can be done now. Returns the instant of the next deadline of
  // a queued launch, kNever if there is none.
  Instant Step();
  // Refuses new launches and ends queued ones with kShutDown at the next step.
  void Close();
  // Nothing queued and nothing on the device.
  bool idle() const;
  ExecutorStats stats() const;

 private:
  // Intrusive, so that queueing allocates nothing.
  struct List {
    Launch* head = nullptr;
    Launch* tail = nullptr;
    void Append(Launch* launch);
    void Remove(Launch* launch);
  };
  absl::Status AdmissibleLocked() const;
  // Each moves ended launches to `ended` and needs mutex_.
  Instant EndQueued(Instant now, List& ended);
  void FillDevice(List& ended);
  void Collect(List& ended);

  Device& device_;
  const int64_t queue_depth_;
  const Clock clock_;
  mutable std::mutex mutex_;
  std::array<List, kPriorities> queues_;  // guarded by mutex_
  std::vector<Launch*> slots_;            // launches on the device; guarded by mutex_
  std::vector<uint32_t> free_slots_;      // guarded by mutex_
  std::vector<uint32_t> slot_uses_;       // part of a ticket, so that a stale one is noticed
  std::vector<Completion> completions_;   // scratch of Step()
  int64_t queued_ = 0;                    // guarded by mutex_
  bool closed_ = false;                   // guarded by mutex_
};

}  // namespace tetrad
