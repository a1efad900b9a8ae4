// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which calls are made again, counted where they arrive.
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"
#include "clients/cpp/failing_daemon.h"

namespace tetrad {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using grpc::StatusCode;

const grpc::Status kBroken(StatusCode::UNAVAILABLE, "broken");

grpc::Status Busy(absl::Duration delay) {
  return {StatusCode::RESOURCE_EXHAUSTED, "queue is full", ErrorDetails("QUEUE_FULL", delay)};
}

class ClientRetryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-retry-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    endpoint_ = absl::StrCat("unix:", folder_, "/s");
    daemon_ = std::make_unique<FailingDaemon>(endpoint_);
    client_ = Connected({});
  }
  void TearDown() override {
    client_.reset();
    daemon_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::unique_ptr<Client> Connected(const ClientOptions& options) const {
    auto client = Client::Connect(endpoint_, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  // How many calls arrive while `call` is made, each failing with `failure`.
  int Arriving(const grpc::Status& failure, const std::function<absl::Status()>& call) {
    daemon_->Plan(100, failure);
    const int before = daemon_->calls();
    EXPECT_EQ(static_cast<int>(call().code()), static_cast<int>(failure.error_code()));
    daemon_->Plan(0, failure);
    return daemon_->calls() - before;
  }
  absl::Status Execute(const CallOptions& call = {}) { return client_->Execute({}, call).status(); }

  std::string folder_, endpoint_;
  std::unique_ptr<FailingDaemon> daemon_;
  std::unique_ptr<Client> client_;
};

v1::PrepareRequest InLease() {
  v1::PrepareRequest request;
  request.set_lease("l");
  return request;
}

TEST_F(ClientRetryTest, WhatChangesNothingIsRepeatedAndCounted) {
  std::vector<uint8_t> out(10);
  const std::function<absl::Status()> kCalls[] = {
      [this] { return client_->GetStatus().status(); },
      [this] { return client_->ListWeights().status(); },
      [this] { return client_->ListBlocks("l").status(); },
      [this] { return client_->Prepare(v1::Signature()).status(); },
      [&] { return client_->Read("b", 0, out); }};
  int64_t retries = 0;
  for (const auto& call : kCalls) {
    daemon_->Plan(2, kBroken);
    const int before = daemon_->calls();
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(daemon_->calls() - before, 3);
    EXPECT_EQ(client_->retries(), retries += 2);
  }
  EXPECT_EQ(out, std::vector<uint8_t>(10, 'x'));
}

TEST_F(ClientRetryTest, WhatMayHaveBegunIsNotRepeated) {
  const std::function<absl::Status()> kCalls[] = {
      [this] { return Execute(); },
      [this] { return client_->Seal("w", 1).status(); },
      [this] { return client_->Drop("w").status(); },
      [this] { return client_->Release("p"); },
      [this] { return client_->Prepare(InLease()).status(); },
      [this] { return client_->Load({}).status(); },
      [this] { return client_->Attach().status(); },
      [this] { return client_->Detach("l"); },
      [this] { return client_->Allocate("l", 1).status(); },
      [this] { return client_->Free("b"); },
      [this] { return client_->SetLogLevel("debug").status(); },
      [this] { return client_->EndLease("l").status(); },
      [this] { return client_->Drain().status(); }};
  const std::string lost = ErrorDetails("DEVICE_LOST", Milliseconds(1));
  for (const auto& call : kCalls) {
    EXPECT_EQ(Arriving(kBroken, call), 1);
    EXPECT_EQ(Arriving({StatusCode::UNAVAILABLE, "lost", lost}, call), 1);
    EXPECT_EQ(Arriving({StatusCode::RESOURCE_EXHAUSTED, "too large"}, call), 1);
    EXPECT_EQ(Arriving({StatusCode::INTERNAL, "ours", lost}, call), 1);
  }
  EXPECT_EQ(client_->retries(), 0);
}

TEST_F(ClientRetryTest, WhatTheDaemonRefusedIsRepeated) {
  const std::function<absl::Status()> kCalls[] = {
      [this] { return Execute(); }, [this] { return client_->Seal("w", 1).status(); },
      [this] { return client_->Load({}).status(); }, [this] { return client_->Attach().status(); },
      [this] { return client_->Allocate("l", 1).status(); }};
  const grpc::Status draining(StatusCode::UNAVAILABLE, "draining",
                              ErrorDetails("DRAINING", Milliseconds(1)));
  for (const auto& call : kCalls) {
    for (const grpc::Status& refusal : {Busy(Milliseconds(1)), draining}) {
      daemon_->Plan(1, refusal);
      const int before = daemon_->calls();
      EXPECT_TRUE(call().ok());
      EXPECT_EQ(daemon_->calls() - before, 2);
    }
  }
}

TEST_F(ClientRetryTest, ALoadThatBeganIsNotRepeated) {
  v1::LoadRequest request;
  request.set_pattern("progress first");
  EXPECT_EQ(Arriving(Busy(Milliseconds(1)), [&] { return client_->Load(request).status(); }), 1);
}

TEST_F(ClientRetryTest, AttemptsAreBounded) {
  EXPECT_EQ(Arriving(kBroken, [this] { return client_->GetStatus().status(); }), 4);
  client_ = Connected({.attempts = 1});
  EXPECT_EQ(Arriving(kBroken, [this] { return client_->GetStatus().status(); }), 1);
  EXPECT_EQ(client_->retries(), 0);
}

TEST_F(ClientRetryTest, TheDaemonsDelayIsWaitedFor) {
  daemon_->Plan(1, Busy(Milliseconds(400)));
  const absl::Time start = absl::Now();
  EXPECT_TRUE(Execute().ok());
  EXPECT_GE(absl::Now() - start, Milliseconds(400));
}

TEST_F(ClientRetryTest, ADelayBeyondTheDeadlineEndsTheCallWithItsReason) {
  const absl::Time start = absl::Now();
  EXPECT_EQ(Arriving(Busy(Seconds(50)), [this] { return Execute({.deadline = Seconds(30)}); }), 1);
  EXPECT_LT(absl::Now() - start, Seconds(20));
}

TEST_F(ClientRetryTest, AllAttemptsTogetherHaveOneDeadline) {
  client_ = Connected({.attempts = 1'000'000});
  daemon_->Plan(10'000, Busy(Milliseconds(1)));
  const absl::Time start = absl::Now();
  EXPECT_EQ(Execute({.deadline = Seconds(1)}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(absl::Now() - start, Seconds(10));
  EXPECT_GT(client_->retries(), 1);
}

TEST_F(ClientRetryTest, AStopRequestEndsTheWaiting) {
  daemon_->Plan(1, Busy(Seconds(50)));
  std::stop_source stop;
  std::jthread stopper([&] {
    while (daemon_->calls() == 0) std::this_thread::yield();
    stop.request_stop();
  });
  const absl::Time start = absl::Now();
  EXPECT_EQ(Execute({.cancel = stop.get_token()}).code(), absl::StatusCode::kCancelled);
  EXPECT_LT(absl::Now() - start, Seconds(20));
  EXPECT_EQ(client_->retries(), 0);
}

TEST_F(ClientRetryTest, ManyFailingCallsDoNotMultiply) {
  client_ = Connected({.deadline = Seconds(3), .attempts = 1'000'000});
  daemon_->Plan(10'000, Busy(Milliseconds(1)));
  std::vector<std::jthread> callers;
  for (int i = 0; i < 64; ++i) {
    callers.emplace_back([this] { EXPECT_FALSE(Execute().ok()); });
  }
  callers.clear();
  EXPECT_GT(client_->retries(), 50);
  EXPECT_LT(client_->retries(), 100 + 10 * 20);
}

// Neither was the daemon there, nor does the Execute count as one that may have begun.
TEST_F(ClientRetryTest, ACallThatFoundNoDaemonIsMadeWhenThereIsOne) {
  client_ = Connected({.attempts = 1'000'000});
  ASSERT_TRUE(Execute().ok());
  daemon_->Stop();
  // The connection is known to be gone once a call failed.
  while (client_->GetStatus({.deadline = Milliseconds(300)}).ok()) {
  }
  const int64_t before = client_->retries();
  const int calls = daemon_->calls();
  absl::Status status = absl::UnknownError("not ended");
  {
    std::jthread caller([&] { status = Execute(); });
    while (client_->retries() == before) std::this_thread::yield();
    daemon_->Start();
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(daemon_->calls() - calls, 1);
}

TEST_F(ClientRetryTest, WithoutADaemonACallFailsSoon) {
  daemon_->Stop();
  const absl::Time start = absl::Now();
  const absl::Status status = Execute();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(endpoint_));
  EXPECT_LT(absl::Now() - start, Seconds(20));
}

TEST_F(ClientRetryTest, EndlessAndVeryLongDeadlinesAreNotShortOnes) {
  for (const absl::Duration deadline :
       {absl::InfiniteDuration(), absl::Hours(24 * 365 * 400), absl::Hours(1)}) {
    EXPECT_TRUE(Execute({.deadline = deadline}).ok()) << deadline;
    EXPECT_TRUE(client_->Attach({}, {.deadline = deadline}).ok()) << deadline;
  }
}

TEST_F(ClientRetryTest, ATraceparentIsSentIfItCanBe) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_TRUE(Execute({.traceparent = good}).ok());
  EXPECT_EQ(daemon_->last_metadata().find("traceparent")->second, good);
  EXPECT_TRUE(client_->Attach({}, {.traceparent = good}).ok());
  EXPECT_EQ(daemon_->last_metadata().find("traceparent")->second, good);
  for (const std::string& bad : {std::string(), good + "\n", std::string("00-\0", 4),
                                 std::string(300, 'a'), std::string("\xC3\xA4")}) {
    EXPECT_TRUE(Execute({.traceparent = bad}).ok());
    EXPECT_EQ(daemon_->last_metadata().count("traceparent"), 0u);
  }
}

}  // namespace
}  // namespace tetrad
