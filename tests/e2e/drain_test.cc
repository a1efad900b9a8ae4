// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SIGTERM: what is running ends, what is new is refused, nothing holds the exit.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "clients/cpp/execute_stream.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// The status the watch hears next; nothing if it has ended.
std::optional<HealthCheckResponse::ServingStatus> Next(
    grpc::ClientReader<HealthCheckResponse>& watch) {
  HealthCheckResponse response;
  if (!watch.Read(&response)) return std::nullopt;
  return response.status();
}

TEST(DrainTest, RunningCallsEndWellAndNewOnesAreRefused) {
  Daemon daemon({"--threads", "1", "--drain-seconds", "60"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "quick");
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  grpc::Status status;
  std::jthread caller([&] {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    status = stubs.gemm->Execute(&context, slow, &response);
  });
  Sleep(100);
  daemon.Signal(SIGTERM);
  Sleep(100);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status refused =
      stubs.gemm->Execute(&context, RequestOf(operands, "quick"), &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("shutting down"));
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off=0"));
}

TEST(DrainTest, LameDuckStillServesButSaysNotReady) {
  Daemon daemon({"--lame-duck-seconds", "2"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "quick");
  int code = 0;
  HttpGet(daemon.http(), "/readyz", &code);
  EXPECT_EQ(code, 200);
  daemon.Signal(SIGTERM);
  Sleep(200);
  HttpGet(daemon.http(), "/readyz", &code);
  EXPECT_EQ(code, 503);
  EXPECT_EQ(HttpGet(daemon.http(), "/healthz"), "alive\n");
  HealthCheckResponse health;
  grpc::ClientContext context;
  ASSERT_TRUE(stubs.health->Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(), HealthCheckResponse::NOT_SERVING);
  // Also on connections that did not exist before.
  ExecuteAndVerify(Stubs(daemon), operands, RequestOf(operands, "quick"));
  EXPECT_EQ(daemon.Wait(absl::Seconds(10)), 0);
}

TEST(DrainTest, WatchesHearTheDrainAndEnd) {
  Daemon daemon({"--drain-seconds", "60"});
  const Stubs stubs(daemon);
  grpc::ClientContext contexts[2];
  HealthCheckRequest unknown;
  unknown.set_service("tetrad.v1.Nothing");
  const auto watch = stubs.health->Watch(&contexts[0], {});
  const auto unknown_watch = stubs.health->Watch(&contexts[1], unknown);
  EXPECT_EQ(Next(*watch), HealthCheckResponse::SERVING);
  EXPECT_EQ(Next(*unknown_watch), HealthCheckResponse::SERVICE_UNKNOWN);
  {
    grpc::ClientContext context;  // one that its client gives up
    const auto abandoned = stubs.health->Watch(&context, {});
    EXPECT_EQ(Next(*abandoned), HealthCheckResponse::SERVING);
    context.TryCancel();
    abandoned->Finish();
  }
  const absl::Time signalled = absl::Now();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(Next(*watch), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Next(*watch), std::nullopt);
  EXPECT_EQ(Next(*unknown_watch), std::nullopt);
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(unknown_watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(daemon.Wait(absl::Seconds(20)), 0);
  EXPECT_LT(absl::Now() - signalled, absl::Seconds(10));
}

TEST(DrainTest, HalfSentUploadDoesNotOutliveTheLimit) {
  Daemon daemon({"--drain-seconds", "1"});
  const Stubs stubs(daemon);
  const UploadMessages messages = UploadMessagesOf(Operands(kShapeT1, {.seed = 1}), "half");
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = stubs.weights->Upload(&context, &response);
  ASSERT_TRUE(writer->Write(messages[0]));
  ASSERT_TRUE(writer->Write(messages[1]));
  Sleep(200);
  const absl::Time signalled = absl::Now();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  const absl::Duration took = absl::Now() - signalled;
  EXPECT_GE(took, absl::Seconds(1));
  EXPECT_LT(took, absl::Seconds(5));
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off=1"));
}

// All kinds of open streams at once: each hears of it, what runs is answered,
// and none holds the exit.
TEST(DrainTest, OpenStreamsHearItAnswerWhatRunsAndEnd) {
  Daemon daemon({"--threads", "1", "--lame-duck-seconds", "4", "--drain-seconds", "60"});
  const Stubs stubs(daemon);
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  grpc::ClientContext context;
  const auto watch = stubs.health->Watch(&context, {});
  EXPECT_EQ(Next(*watch), HealthCheckResponse::SERVING);
  const auto idle = client->OpenExecuteStream();
  const auto busy = client->OpenExecuteStream();
  constexpr uint64_t kRunning = 6;
  for (uint64_t id = 1; id <= kRunning; ++id) ASSERT_TRUE(busy->Submit(id, slow));
  ASSERT_TRUE(Eventually([&] {
    return Metric(daemon, "tetrad_launches_in_flight") >= 3 &&
           Metric(daemon, "tetrad_open_streams{kind=\"execute\"}") == 2;
  }));
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return attachment->draining(); }));
  EXPECT_TRUE(attachment->status().ok()) << "still held in the lame-duck time";
  EXPECT_EQ(Next(*watch), HealthCheckResponse::NOT_SERVING);
  // In the lame-duck time all of it still works.
  const auto late = client->Attach();
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE((*late)->draining());
  EXPECT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
  EXPECT_EQ(attachment->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client->Attach().status().code(), absl::StatusCode::kUnavailable);
  // Now the gate is closed.
  EXPECT_FALSE(idle->Next().has_value());
  EXPECT_EQ(idle->Finish().code(), absl::StatusCode::kUnavailable);
  busy->Submit(99, slow);
  uint64_t answered = 0;
  while (const auto answer = busy->Next()) {
    if (answer->id() == 99) {
      EXPECT_EQ(answer->code(), 14) << answer->message();
      EXPECT_THAT(answer->message(), HasSubstr("shutting down"));
    } else {
      ++answered;
      EXPECT_EQ(answer->code(), 0) << answer->message();
    }
  }
  EXPECT_EQ(answered, kRunning);
  EXPECT_EQ(busy->Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon.Wait(absl::Seconds(20)), 0);
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off=0"));
}

TEST(DrainTest, StreamsWhoseAnswersNobodyReadsDoNotOutliveTheLimit) {
  Daemon daemon({"--drain-seconds", "1"});
  const Stubs stubs(daemon);
  const GroupShape kShapes[] = {{128, 49152, 32}};  // answers of 12 MiB
  SampleOptions options;
  options.kind = DataKind::kContest;
  const Operands operands(kShapes, options);
  Register(stubs, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  const auto stream = client->OpenExecuteStream();
  for (uint64_t id = 0; id < 20; ++id) ASSERT_TRUE(stream->Submit(id, request));
  ASSERT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_device_seconds_count") == 20; }));
  const absl::Time signalled = absl::Now();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  EXPECT_GE(absl::Now() - signalled, absl::Seconds(1));
  EXPECT_THAT(daemon.Log(), HasSubstr("calls_cut_off=1"));
  EXPECT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
}

TEST(DrainTest, SecondSignalExitsAtOnce) {
  Daemon daemon({"--lame-duck-seconds", "60"});
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(absl::Milliseconds(300)), std::nullopt);
  daemon.Signal(SIGINT);
  EXPECT_EQ(daemon.Wait(absl::Seconds(5)), 128 + SIGINT);
}

}  // namespace
}  // namespace tetrad::e2e
