// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A client over the end of one daemon and the beginning of the next.
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>

#include "absl/time/clock.h"

#include "clients/cpp/client.h"
#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

TEST(ClientRetryTest, ACallBridgesARestartOfTheDaemon) {
  Daemon daemon;
  const Operands operands(kShapeT1, {.seed = 1});
  auto client = Client::Connect(daemon.socket(), {.attempts = 10'000});
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->GetStatus().ok());
  for (const int signal : {SIGKILL, SIGTERM}) {
    daemon.Signal(signal);
    ASSERT_TRUE(daemon.Wait(absl::Seconds(60)).has_value());
    const absl::Time ended = absl::Now();
    const int64_t retries = (*client)->retries();
    absl::Status status;
    absl::Time answered;
    std::jthread caller([&] {
      status = (*client)->GetStatus({.deadline = absl::Seconds(120)}).status();
      answered = absl::Now();
    });
    while ((*client)->retries() == retries) absl::SleepFor(absl::Milliseconds(5));
    daemon.Restart();
    const absl::Time ready = absl::Now();
    caller.join();
    EXPECT_TRUE(status.ok()) << status;
    // Connecting is tried again after at most 0.6 times the outage, a fifth more
    // by chance: for the usual short one within the second.
    EXPECT_LT(answered - ready, absl::Seconds(1) + 0.75 * (ready - ended));
    // And what must not be repeated works at the first attempt.
    Register(Stubs(daemon), operands, "w");
    const auto response = (*client)->Execute(RequestOf(operands, "w"));
    EXPECT_TRUE(response.ok()) << response.status();
  }
}

}  // namespace
}  // namespace tetrad::e2e
