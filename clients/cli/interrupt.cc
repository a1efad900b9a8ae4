// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/exit_code.h"

namespace tetrad::cli {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  watcher_ = std::jthread([this, signals](const std::stop_token& ended) {
    // Polling is what lets the destructor end the wait without a signal.
    const timespec poll{.tv_sec = 0, .tv_nsec = 50'000'000};
    while (!ended.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &poll) < 0) continue;
      if (!source_.request_stop()) _exit(kExitInterrupted);
    }
  });
}

Interrupt::~Interrupt() = default;

}  // namespace tetrad::cli
