// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Executor: bounded queues in front of a device, as a step function.
//
// Submit() queues a launch, Step() moves everything that can move at that
// instant: it ends launches whose deadline passed, hands the device as many as
// it should have (in the order of launch_queue.h), and collects completions. Submit() may hand
// over, too, so that a launch the device has room for waits for no other thread. No threads, no
// clock and no sockets here: engine_threads.h drives it in the daemon, tests drive it by hand.
//
// The device is given little more than keeps it busy: what waits here can
// still be overtaken by a higher priority, cancelled, or end at its deadline.
//
// A device that is lost, by its own word or because a completion never came,
// ends every launch with kDeviceLost and refuses new ones. Whether the device
// still writes what those launches were given is not known.
//
// A Launch belongs to the caller, who keeps it alive and does not touch it
// from Submit() until `done` was called, exactly once, by Step(). The cost of
// a launch does not depend on how many others wait, but for the logarithm in
// keeping deadlines and flows; in steady state nothing here allocates. Submit() and
// Cancel() are thread-safe; Step() is for one thread at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "engine/device.h"
#include "engine/launch.h"
#include "engine/launch_queue.h"
#include "engine/placed_heap.h"
#include "engine/support/instant.h"

namespace tetrad {

struct ExecutorStats {
  int64_t queued = 0;
  int64_t on_device = 0;
};

class Executor {
 public:
  struct Options {
    int64_t queue_depth = 1024;
    // The device is given a launch ahead of need (one runs, one waits) only
    // while all it has are predicted to end within this time.
    int64_t run_ahead_ns = 2'000'000;
    // A device at whose head a launch has been for so long, beyond what kOverrun
    // times its prediction allows, without a completion, is lost.
    int64_t launch_timeout_ns = kNever;
    // Submit() hands the device what it should have.
    bool launch_at_submit = false;
    // Step() is due at least so often, so that Submit() seldom has to ask for it.
    int64_t step_interval_ns = kNever;
  };
  // How much slower than predicted a launch may be, e.g. beside other processes.
  static constexpr int64_t kOverrun = 32;

  Executor(Device& device, const Options& options, Clock clock);

  // RESOURCE_EXHAUSTED when the queue is full, with the predicted time until there
  // is room as the delay before another try; UNAVAILABLE after Close() or
  // when the device is lost. True if Step() is due earlier than it said, not
  // counting completions.
  absl::StatusOr<bool> Submit(Launch* launch);
  // What Submit() would say now: asked before work that a refusal would waste.
  absl::Status Admissible() const;
  // Before hand-over: ends it with kCancelled at the next step. On the device:
  // its result is dropped and it ends with kCancelled when it completes.
  void Cancel(Launch* launch);
  // Does all that can be done now. Returns the instant at which something is
  // due even if nothing happens, kNever if nothing is.
  Instant Step();
  // Refuses new launches and ends queued ones with kShutDown at the next step.
  void Close();
  // Nothing queued and nothing on the device.
  bool idle() const;
  // OK, or why the device is lost.
  absl::Status lost() const;
  ExecutorStats stats() const;

 private:
  static bool EndsBefore(const Launch& a, const Launch& b) { return a.deadline < b.deadline; }
  // All below need mutex_.
  absl::Status AdmissibleLocked() const;
  // As predicted; zero if nothing is known.
  absl::Duration UntilNextCompletion() const;
  void EndQueued(Launch* launch, LaunchOutcome outcome, Instant now);
  void EndOnDevice(Launch* launch, LaunchOutcome outcome, Instant now);
  void EndLate(Instant now);
  void EndAllQueued(LaunchOutcome outcome, Instant now);
  // When the oldest launch on the device will have taken too long.
  Instant TimeLimit() const;
  Instant Due() const;  // when Step() has something to do at the latest
  void CheckDevice(Instant now);
  bool WantsMore(const Launch& launch) const;
  void FillDevice();
  void Collect();

  Device& device_;
  const Options options_;
  const Clock clock_;
  std::vector<Completion> completions_;  // scratch of Step()
  mutable std::mutex mutex_;             // guards all below
  LaunchQueue queue_;
  // Queued launches that have a deadline.
  PlacedHeap<Launch, &Launch::place_, &Executor::EndsBefore> deadlines_;
  LaunchList on_device_;  // in order of hand-over
  int64_t on_device_count_ = 0;
  int64_t on_device_predicted_ns_ = 0;
  Instant progress_ = 0;        // when the device completed something last
  Instant next_step_ = 0;       // what Step() returned
  LaunchList ended_;            // `done` not called yet
  std::vector<Launch*> slots_;  // launches on the device
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> slot_uses_;  // part of a ticket, so that a stale one is noticed
  bool closed_ = false;
  absl::Status lost_;
};

}  // namespace tetrad
