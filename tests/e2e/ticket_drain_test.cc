// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SIGTERM and a lost device with tickets under way.
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "tests/e2e/memory_client.h"
#include "tests/e2e/stopped_threads.h"

namespace tetrad::e2e {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

v1::WaitRequest For(const std::string& ticket) {
  v1::WaitRequest request;
  request.set_ticket(ticket);
  request.set_timeout_seconds(600);
  return request;
}

// What runs is waited for; who waits for it is told at once.
TEST(TicketDrainTest, TheDrainWaitsForTicketsAndNotForWaiters) {
  Daemon daemon({"--threads", "1", "--drain-seconds", "60"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  const auto client = ConnectClient(daemon.socket());
  v1::SubmitRequest request;
  *request.mutable_execute() = RequestOf(operands, "w");
  const auto done = client->Submit(request);
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_TRUE(client->Wait(For(done->ticket())).ok());
  StoppedThreads device(daemon.pid(), kDeviceThread);
  const auto running = client->Submit(request);
  ASSERT_TRUE(running.ok()) << running.status();

  std::vector<std::string> told;
  absl::Status watched, waited;
  std::jthread watcher([&] {
    const auto own = ConnectClient(daemon.socket());
    const std::string names[] = {running->ticket(), done->ticket()};
    watched = own->Watch(names, [&](const v1::TicketEvent& event) {
      EXPECT_EQ(event.code(), 0) << event.message();
      told.push_back(event.ticket());
    });
  });
  std::jthread waiter([&] {
    const auto own = ConnectClient(daemon.tcp());
    waited = own->Wait(For(running->ticket())).status();
    EXPECT_EQ(waited.code(), StatusCode::kNotFound) << "of another client";
    waited = ConnectClient(daemon.socket())->Wait(For(running->ticket())).status();
  });
  ASSERT_TRUE(Eventually([&] {
    return Metric(daemon, "tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Wait\"}") == 1 &&
           Metric(daemon,
                  "tetrad_requests_total{method=\"tetrad.v1.Gemm/Wait\",code=\"NOT_FOUND\"}") ==
               1 &&
           Metric(daemon, "tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Watch\"}") == 1;
  }));
  daemon.Signal(SIGTERM);
  waiter.join();
  watcher.join();
  EXPECT_EQ(waited.code(), StatusCode::kUnavailable) << waited;
  EXPECT_THAT(std::string(waited.message()), HasSubstr("shutting down"));
  EXPECT_EQ(watched.code(), StatusCode::kUnavailable) << watched;
  EXPECT_THAT(told, ::testing::ElementsAre(done->ticket())) << "what is known is told";
  EXPECT_EQ(client->Submit(request).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(daemon.Wait(absl::Milliseconds(500)), std::nullopt) << "it waits for the ticket";
  device.Resume();
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off=0"));

  // The next daemon knows none of them, and says that.
  daemon.Restart();
  const auto next = ConnectClient(daemon.socket());
  EXPECT_EQ(next->Wait(For(done->ticket())).status().code(), StatusCode::kAborted);
}

TEST(TicketDrainTest, TicketsBeyondTheTimeOfTheDrainAreCutOff) {
  Daemon daemon({"--threads", "1", "--drain-seconds", "0"});
  const Stubs stubs(daemon);
  const GroupShape kShapes[] = {{256, 1024, 1024}};
  const Operands operands(kShapes, {.seed = 1});
  Register(stubs, operands, "w");
  const auto client = ConnectClient(daemon.socket());
  v1::SubmitRequest request;
  *request.mutable_execute() = RequestOf(operands, "w");
  ASSERT_TRUE(client->Submit(request).ok());  // the plan
  constexpr int kTickets = 64;
  {
    StoppedThreads device(daemon.pid(), kDeviceThread);
    for (int i = 0; i < kTickets; ++i) ASSERT_TRUE(client->Submit(request).ok());
    daemon.Signal(SIGTERM);
    ASSERT_TRUE(Eventually([&] { return !client->GetStatus().ok(); }));
  }
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off="));
  EXPECT_THAT(daemon.Log(), ::testing::Not(HasSubstr("calls_cut_off=0")));
}

}  // namespace
}  // namespace tetrad::e2e
