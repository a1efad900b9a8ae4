// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// EngineThreads: the two threads that drive an engine in the daemon.
//
// One calls Step() whenever its doorbell was rung (a launch waits or was
// cancelled, a completion is there) or a deadline is due; the other calls
// Housekeep() in the same way, so that returning gigabytes delays no launch. What
// the device has room for is launched by neither, but by who submits it.
// The destructor closes the engine, ends what is queued, waits for what the
// device has, and joins.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "engine/engine.h"
#include "engine/support/doorbell.h"

namespace tetrad {

class EngineThreads {
 public:
  EngineThreads(Engine& engine, std::shared_ptr<Doorbell> step,
                std::shared_ptr<Doorbell> housekeep);
  ~EngineThreads();

 private:
  void RunStep();
  void RunHousekeep();

  Engine& engine_;
  const std::shared_ptr<Doorbell> step_;
  const std::shared_ptr<Doorbell> housekeep_;
  std::atomic<bool> stopping_{false};
  std::thread step_thread_;
  std::thread housekeep_thread_;
};

}  // namespace tetrad
