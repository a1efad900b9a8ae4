// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_threads.h"

#include <chrono>
#include <utility>

namespace tetrad {
namespace {

void WaitUntil(Doorbell& doorbell, Instant due) {
  using Steady = std::chrono::steady_clock;
  doorbell.WaitUntil(due == kNever ? Steady::time_point::max()
                                   : Steady::time_point(std::chrono::nanoseconds(due)));
}

}  // namespace

EngineThreads::EngineThreads(Engine& engine, std::shared_ptr<Doorbell> step,
                             std::shared_ptr<Doorbell> housekeep)
    : engine_(engine),
      step_(std::move(step)),
      housekeep_(std::move(housekeep)),
      step_thread_([this] { RunStep(); }),
      housekeep_thread_([this] { RunHousekeep(); }) {}

EngineThreads::~EngineThreads() {
  engine_.Close();
  stopping_.store(true);
  step_->Ring();
  step_thread_.join();
  housekeep_->Ring();
  housekeep_thread_.join();
}

void EngineThreads::RunStep() {
  for (;;) {
    const Instant due = engine_.Step();
    if (stopping_.load() && engine_.idle()) return;
    WaitUntil(*step_, due);
  }
}

void EngineThreads::RunHousekeep() {
  while (!stopping_.load()) WaitUntil(*housekeep_, engine_.Housekeep());
}

}  // namespace tetrad
