// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/executor_thread.h"

#include <chrono>
#include <utility>

namespace tetrad {

Instant SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

ExecutorThread::ExecutorThread(Executor& executor, std::shared_ptr<Doorbell> doorbell)
    : executor_(executor), doorbell_(std::move(doorbell)), thread_([this] { Run(); }) {}

ExecutorThread::~ExecutorThread() {
  executor_.Close();
  stopping_.store(true);
  doorbell_->Ring();
  thread_.join();
}

void ExecutorThread::Run() {
  while (true) {
    const Instant next = executor_.Step();
    if (stopping_.load() && executor_.idle()) return;
    doorbell_->WaitUntil(
        next == kNever ? std::chrono::steady_clock::time_point::max()
                       : std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
  }
}

}  // namespace tetrad
