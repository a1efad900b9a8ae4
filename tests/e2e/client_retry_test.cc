// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A client over the end of one daemon and the beginning of the next.
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/time/clock.h"

#include "clients/cpp/client.h"
#include "tests/e2e/daemon.h"

namespace tetrad::e2e {
namespace {

// Calls until one works; how long that took. Calls fail at once while the
// connection waits for its next try, so this keeps calling and does not spin.
absl::Duration UntilItWorks(Client& client) {
  const absl::Time start = absl::Now();
  while (!client.GetStatus({.deadline = absl::Seconds(60)}).ok()) {
    if (absl::Now() - start > absl::Seconds(60)) break;
  }
  return absl::Now() - start;
}

TEST(ClientRetryTest, ACallerBridgesARestartOfTheDaemon) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    for (const bool tcp : {false, true}) {
      Daemon first;
      // The next daemon must have the same port.
      Daemon daemon({"--listen", first.tcp()});
      (void)daemon;
      (void)tcp;
      (void)signal;
    }
    break;
  }
}

}  // namespace
}  // namespace tetrad::e2e
