// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A device that no longer answers: the daemon says so to everybody, and makes
// room for the next one.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "clients/cpp/execute_stream.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

// Stops the daemon's device thread for good: what it is given never completes.
// Its number; nothing where one process may not trace another.
std::optional<pid_t> StopDevice(pid_t daemon) {
  const std::string tasks = absl::StrCat("/proc/", daemon, "/task");
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "tetrad-device") continue;
    const pid_t thread = std::stoi(task.path().filename());
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return std::nullopt;
    if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return std::nullopt;
    if (::waitpid(thread, nullptr, __WALL) == thread) return thread;
  }
  return std::nullopt;
}

TEST(DeviceLostTest, EveryRequestIsToldAndTheDaemonExits) {
  Daemon daemon({"--threads", "1", "--launch-timeout-seconds", "2", "--lame-duck-seconds", "60",
                 "--drain-seconds", "60"});
  const Stubs stubs(daemon);
  const Operands small(kShapeT1, {.seed = 1});
  Register(stubs, small, "small");

  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  grpc::ClientContext context;
  const auto watch = stubs.health->Watch(&context, {});
  HealthCheckResponse health;
  ASSERT_TRUE(watch->Read(&health));
  absl::Status executed;
  const std::optional<pid_t> stopped = StopDevice(daemon.pid());
  ASSERT_TRUE(stopped.has_value()) << "a process must be allowed to trace its children";
  // Who traces a thread must see it end before its process can.
  const std::jthread reaper([&] { ::waitpid(*stopped, nullptr, __WALL); });
  std::jthread caller([&] { executed = client->Execute(RequestOf(small, "small")).status(); });
  ASSERT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_launches_in_flight") == 1; }));
  const auto stream = client->OpenExecuteStream();
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(stream->Submit(id, RequestOf(small, "small")));
  v1::SubmitRequest submit;
  *submit.mutable_execute() = RequestOf(small, "small");
  const auto ticket = client->Submit(submit);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  absl::StatusOr<v1::WaitResponse> outcome;
  std::jthread waiter([&] {
    v1::WaitRequest wait;
    wait.set_ticket(ticket->ticket());
    wait.set_timeout_seconds(600);
    outcome = client->Wait(wait);
  });

  EXPECT_EQ(daemon.Wait(absl::Seconds(60)), EX_SOFTWARE);
  caller.join();
  EXPECT_EQ(executed.code(), absl::StatusCode::kUnavailable) << executed;
  EXPECT_THAT(std::string(executed.message()), HasSubstr("device"));
  // The outcome, or that the daemon ends: whichever came first.
  waiter.join();
  EXPECT_EQ(outcome.ok() ? static_cast<absl::StatusCode>(outcome->code()) : outcome.status().code(),
            absl::StatusCode::kUnavailable);
  int answers = 0;
  while (const auto answer = stream->Next()) {
    EXPECT_EQ(answer->code(), 14) << answer->message();
    ++answers;
  }
  EXPECT_EQ(answers, 3);
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
  EXPECT_EQ(attachment->status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(watch->Read(&health));
  EXPECT_EQ(health.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_THAT(daemon.Log(), HasSubstr("event=\"device lost\""));

  daemon.Restart();
  Register(Stubs(daemon), small, "small");
  ExecuteAndVerify(Stubs(daemon), small, RequestOf(small, "small"));
}

}  // namespace
}  // namespace tetrad::e2e
