// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecutorThread: the thread and clock that drive an Executor in the daemon.
//
// Steps whenever the doorbell was rung (a launch was submitted or cancelled, a
// completion is there) or a queued launch's deadline is due. The destructor
// closes the executor, ends what is queued, waits for what the device has, and
// joins.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "engine/executor.h"
#include "engine/support/doorbell.h"

namespace tetrad {

// Nanoseconds of the steady clock.
Instant SteadyNow();

class ExecutorThread {
 public:
  ExecutorThread(Executor& executor, std::shared_ptr<Doorbell> doorbell);
  ~ExecutorThread();

 private:
  void Run();

  Executor& executor_;
  const std::shared_ptr<Doorbell> doorbell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tetrad
