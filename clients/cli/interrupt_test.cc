// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/interrupt.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "clients/cli/exit_code.h"

namespace tetrad::cli {
namespace {

bool StopsWithin(const std::stop_token& token, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!token.stop_requested() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return token.stop_requested();
}

// Each in a child process: signals and their masks belong to the whole process.
TEST(InterruptDeathTest, FirstSignalRequestsAStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const Interrupt interrupt;
          kill(getpid(), signal);
          _exit(StopsWithin(interrupt.token(), std::chrono::seconds(10)) ? 42 : 43);
        },
        ::testing::ExitedWithCode(42), "");
  }
}

TEST(InterruptDeathTest, SecondSignalEndsTheProgram) {
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        kill(getpid(), SIGINT);
        StopsWithin(interrupt.token(), std::chrono::seconds(10));
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(std::chrono::seconds(10));
        _exit(43);
      },
      ::testing::ExitedWithCode(kExitInterrupted), "");
}

TEST(InterruptDeathTest, EndsWithoutASignal) {
  EXPECT_EXIT(
      {
        { const Interrupt interrupt; }
        _exit(42);
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace tetrad::cli
