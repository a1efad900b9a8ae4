// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteStream: many requests under way, each answered once, and nothing that
// goes wrong with one touches another.
#include "clients/cpp/execute_stream.h"

#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kOk = 0, kCancelled = 1, kInvalidArgument = 3, kDeadlineExceeded = 4, kAborted = 10;

// Until the stream ends; an id that is answered twice fails the test.
std::vector<v1::ExecuteStreamResponse> Drain(ExecuteStream& stream) {
  std::vector<v1::ExecuteStreamResponse> answers;
  std::map<uint64_t, int> seen;
  while (auto answer = stream.Next()) {
    if (!answer->duplicate_id()) {
      EXPECT_EQ(++seen[answer->id()], 1) << answer->id();
    }
    answers.push_back(*std::move(answer));
  }
  return answers;
}

std::vector<uint64_t> Ids(const std::vector<v1::ExecuteStreamResponse>& answers) {
  std::vector<uint64_t> ids;
  for (const auto& answer : answers) ids.push_back(answer.id());
  return ids;
}

TEST(ExecuteStreamTest, ManyUnderWayEachAnsweredOnceWithItsBits) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  std::vector<Operands> cases;
  std::vector<v1::ExecuteRequest> requests;
  for (size_t i = 0; i < std::size(kTestShapes); ++i) {
    cases.emplace_back(kTestShapes[i].groups, SampleOptions{.seed = 400 + i});
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string name = absl::StrCat("w", i);
    Register(stubs, cases[i], name);
    requests.push_back(RequestOf(cases[i], name));
  }
  PlacedOperands placed(*client, cases[0], "w0", attachment->lease());
  constexpr uint64_t kRequests = 200;
  const auto stream = client->OpenExecuteStream();
  std::jthread writer([&] {
    for (uint64_t id = 0; id < kRequests; ++id) {
      v1::ExecuteRequest request = id % 10 == 9 ? placed.request : requests[id % cases.size()];
      request.set_priority(static_cast<v1::Priority>(id % 4));
      ASSERT_TRUE(stream->Submit(id * 1'000'003, request));
    }
    stream->Close();
  });
  const auto answers = Drain(*stream);
  writer.join();
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  ASSERT_EQ(answers.size(), kRequests);
  for (const auto& answer : answers) {
    const uint64_t id = answer.id() / 1'000'003;
    ASSERT_EQ(answer.code(), kOk) << id << ": " << answer.message();
    if (id % 10 == 9) {
      EXPECT_EQ(answer.response().output(), "");
      continue;
    }
    const Verdict verdict = Judge(cases[id % cases.size()], answer.response().output());
    ASSERT_TRUE(verdict.pass) << id << ": " << verdict.ToString();
  }
  placed.Verify(*client);
  EXPECT_EQ(Metric(daemon, "tetrad_stream_requests_total{code=\"OK\"}"), kRequests);
  EXPECT_EQ(Metric(daemon, "tetrad_device_seconds_count"), kRequests);
  EXPECT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_call_bytes") == 0; }));
}

// One thread, busy with the first: what is urgent overtakes what waits.
TEST(ExecuteStreamTest, AnswersComeInTheOrderOfCompletion) {
  const Daemon daemon({"--threads", "1"});
  const Stubs stubs(daemon);
  v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "quick");
  v1::ExecuteRequest quick = RequestOf(operands, "quick");
  slow.set_priority(v1::PRIORITY_LOW);
  quick.set_priority(v1::PRIORITY_HIGH);
  const auto client = ConnectClient(daemon.socket());
  const auto stream = client->OpenExecuteStream();
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(stream->Submit(id, slow));
  ASSERT_TRUE(Eventually([&] { return client->GetStatus()->in_flight() == 4; }));
  for (uint64_t id = 11; id <= 13; ++id) ASSERT_TRUE(stream->Submit(id, quick));
  stream->Close();
  const auto answers = Drain(*stream);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(answers.size(), 7u);
  for (const auto& answer : answers) EXPECT_EQ(answer.code(), kOk) << answer.message();
  EXPECT_LE(answers.back().id(), 4u) << "the last of the slow ones";
  for (const auto& answer : answers) {
    if (answer.id() > 10) {
      const Verdict verdict = Judge(operands, answer.response().output());
      EXPECT_TRUE(verdict.pass) << verdict.ToString();
    }
  }
  // Of the slow ones at most two were with the device already.
  const std::vector<uint64_t> ids = Ids(answers);
  EXPECT_GE(
      std::count_if(std::ranges::find(ids, 13u), ids.end(), [](uint64_t id) { return id <= 4; }), 2)
      << ::testing::PrintToString(ids);
}

TEST(ExecuteStreamTest, WhatIsWrongWithOneIsToldInItsAnswer) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 2});
  Register(stubs, operands, "w");
  const v1::ExecuteRequest good = RequestOf(operands, "w");
  struct Case {
    int code;
    const char* text;
    std::function<void(v1::ExecuteStreamRequest&)> spoil;
  };
  const auto timeout = [](double seconds) {
    return [seconds](v1::ExecuteStreamRequest& r) { r.set_timeout_seconds(seconds); };
  };
  const Case kCases[] = {
      {kInvalidArgument, "one of `execute` and `cancel`",
       [](v1::ExecuteStreamRequest& r) { r.clear_message(); }},
      {kInvalidArgument, "one of `execute` and `cancel`",
       [](v1::ExecuteStreamRequest& r) {  // of a client that knows a third
         r.clear_message();
         r.GetReflection()->MutableUnknownFields(&r)->AddLengthDelimited(99, "x");
       }},
      {kInvalidArgument, "one of `plan` and `signature`",
       [](v1::ExecuteStreamRequest& r) { r.mutable_execute()->Clear(); }},
      {kInvalidArgument, "operands: one of",
       [](v1::ExecuteStreamRequest& r) { r.mutable_execute()->clear_operands(); }},
      {kInvalidArgument, "priority: unknown value 9",
       [](v1::ExecuteStreamRequest& r) {
         r.mutable_execute()->set_priority(static_cast<v1::Priority>(9));
       }},
      {kInvalidArgument, "activations",
       [](v1::ExecuteStreamRequest& r) {
         r.mutable_execute()->mutable_inline_operands()->mutable_activations()->pop_back();
       }},
      {5, "weights",
       [](v1::ExecuteStreamRequest& r) {
         r.mutable_execute()->mutable_signature()->set_weights("none");
       }},
      {kInvalidArgument, "timeout_seconds: -1", timeout(-1)},
      {kInvalidArgument, "timeout_seconds: nan", timeout(std::numeric_limits<double>::quiet_NaN())},
      {kInvalidArgument, "timeout_seconds: inf", timeout(std::numeric_limits<double>::infinity())},
      {kDeadlineExceeded, "deadline", timeout(1e-9)},
      {kOk, "", timeout(1e300)},
      {kOk, "", timeout(std::numeric_limits<double>::denorm_min())},
      {kOk, "", [](v1::ExecuteStreamRequest&) {}},
  };
  grpc::ClientContext context;
  const auto stream = stubs.gemm->ExecuteStream(&context);
  uint64_t id = UINT64_MAX;
  for (const Case& row : kCases) {
    v1::ExecuteStreamRequest message;
    message.set_id(id);
    *message.mutable_execute() = good;
    row.spoil(message);
    ASSERT_TRUE(stream->Write(message));
    v1::ExecuteStreamResponse answer;
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.id(), id);
    const bool tiny = message.timeout_seconds() > 0 && message.timeout_seconds() < 1e-300;
    EXPECT_EQ(answer.code(), tiny ? kDeadlineExceeded : row.code) << row.text << answer.message();
    EXPECT_THAT(answer.message(), HasSubstr(row.text));
    EXPECT_EQ(answer.has_response(), answer.code() == kOk);
    EXPECT_FALSE(answer.duplicate_id());
    --id;
  }
  stream->WritesDone();
  v1::ExecuteStreamResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ExecuteStreamTest, CancelTimeoutAndDuplicatesWhileOneRuns) {
  const Daemon daemon({"--threads", "1"});
  const Stubs stubs(daemon);
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const Operands operands(kShapeT1, {.seed = 3});
  Register(stubs, operands, "quick");
  const v1::ExecuteRequest quick = RequestOf(operands, "quick");
  const auto client = ConnectClient(daemon.socket());
  const auto stream = client->OpenExecuteStream();
  ASSERT_TRUE(stream->Submit(1, slow));
  ASSERT_TRUE(Eventually([&] { return client->GetStatus()->in_flight() == 1; }));
  // Of what runs, and of what nobody asked for.
  ASSERT_TRUE(stream->Submit(2, slow));
  ASSERT_TRUE(stream->Cancel(2));
  ASSERT_TRUE(stream->Cancel(77));
  auto answer = stream->Next();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id(), 2u);
  EXPECT_EQ(answer->code(), kCancelled);
  // The number is free again; that of the running one is not.
  ASSERT_TRUE(stream->Submit(2, slow, absl::Milliseconds(1)));
  ASSERT_TRUE(stream->Submit(1, quick));
  // Whatever else is wrong with it: this is not the answer of the running one.
  ASSERT_TRUE(stream->Submit(1, quick, -absl::Seconds(1)));
  std::map<bool, v1::ExecuteStreamResponse> by_duplicate;
  int duplicates = 0;
  for (int i = 0; i < 3; ++i) {
    answer = stream->Next();
    ASSERT_TRUE(answer.has_value());
    duplicates += answer->duplicate_id() ? 1 : 0;
    by_duplicate[answer->duplicate_id()] = *answer;
  }
  EXPECT_EQ(duplicates, 2);
  EXPECT_EQ(by_duplicate[false].id(), 2u);
  EXPECT_EQ(by_duplicate[false].code(), kDeadlineExceeded);
  EXPECT_EQ(by_duplicate[true].id(), 1u);
  EXPECT_EQ(by_duplicate[true].code(), kInvalidArgument);
  EXPECT_THAT(by_duplicate[true].message(), HasSubstr("id: 1 is that of a request under way"));
  stream->Close();
  const auto rest = Drain(*stream);
  EXPECT_THAT(Ids(rest), ElementsAre(1));
  EXPECT_EQ(rest[0].code(), kOk) << rest[0].message();
  EXPECT_EQ(rest[0].response().output().size(), size_t{4096} * 3072 * 2);
  EXPECT_TRUE(stream->Finish().ok());
}

// With all slots taken nothing more is read, whatever the client sends.
TEST(ExecuteStreamTest, AtTheLimitNothingMoreIsTaken) {
  const Daemon daemon({"--stream-in-flight", "3", "--threads", "1"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 4});
  Register(stubs, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  const auto client = ConnectClient(daemon.socket());
  const auto stream = client->OpenExecuteStream();
  constexpr uint64_t kRequests = 600;
  std::jthread writer([&] {
    for (uint64_t id = 0; id < kRequests; ++id) ASSERT_TRUE(stream->Submit(id, request));
    stream->Close();
  });
  // A reader that takes its time: what is under way never exceeds the limit.
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_LE(client->GetStatus()->in_flight(), 3);
  });
  const auto answers = Drain(*stream);
  writer.join();
  watcher = std::jthread();
  ASSERT_EQ(answers.size(), kRequests);
  for (const auto& answer : answers) EXPECT_EQ(answer.code(), kOk) << answer.message();
  EXPECT_TRUE(stream->Finish().ok());
}

// Answers of 24 MiB that nobody reads: as many are made as there are slots.
TEST(ExecuteStreamTest, AnswersThatNobodyReadsHoldTheStreamBack) {
  const Daemon daemon({"--stream-in-flight", "2"});
  const GroupShape kShapes[] = {{128, 49152, 32}};
  SampleOptions options;
  options.kind = DataKind::kContest;
  options.types.c_type = OutputType::kFp32;
  const Operands operands(kShapes, options);
  const Stubs stubs(daemon);
  Register(stubs, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  const auto client = ConnectClient(daemon.socket());
  const auto stream = client->OpenExecuteStream();
  constexpr uint64_t kRequests = 12;
  std::jthread writer([&] {
    for (uint64_t id = 0; id < kRequests; ++id) ASSERT_TRUE(stream->Submit(id, request));
    stream->Close();
  });
  // The client's library takes in what its window allows, then all stands.
  const auto executed = [&] { return Metric(daemon, "tetrad_device_seconds_count"); };
  double before = -1;
  ASSERT_TRUE(Eventually([&] {
    const double now = executed();
    const bool stands = now > 0 && now == before && client->GetStatus()->in_flight() == 0;
    before = now;
    absl::SleepFor(absl::Milliseconds(200));
    return stands;
  }));
  EXPECT_LT(before, kRequests);
  EXPECT_LE(Metric(daemon, "tetrad_call_bytes"), 2 * (2 * (24 << 20) + (64 << 10)));
  const auto answers = Drain(*stream);
  EXPECT_EQ(answers.size(), kRequests);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_call_bytes") == 0; }));
}

// Streams that are finished, cancelled in part, abandoned at any moment.
TEST(ExecuteStreamTest, StreamsThatComeAndGoLeaveNothing) {
  const Daemon daemon({"--stream-in-flight", "8"});
  const Stubs stubs(daemon);
  const GroupShape kShapes[] = {{128, 2048, 32}};  // answers of 512 KiB: both ways to copy
  const Operands large(kShapes, {.seed = 5});
  const GroupShape kSmall[] = {{3, 24, 64}};
  const Operands small(kSmall, {.seed = 6});
  Register(stubs, large, "large");
  Register(stubs, small, "small");
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  PlacedOperands placed(*client, small, "small", attachment->lease());
  const v1::ExecuteRequest requests[] = {placed.request, RequestOf(large, "large"),
                                         RequestOf(small, "small")};
  const std::string idle = Held(daemon, *client);
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      uint32_t state = t;
      const auto draw = [&state](uint32_t below) {
        return (state = state * 1664525 + 1013904223) % 65536 * below / 65536;
      };
      const auto own = ConnectClient(draw(2) == 0 ? daemon.socket() : daemon.tcp());
      for (int round = 0; round < 40; ++round) {
        const auto stream = own->OpenExecuteStream();
        const uint32_t count = draw(8);
        for (uint64_t id = 0; id < count; ++id) {
          const absl::Duration timeout =
              draw(4) == 0 ? absl::Microseconds(draw(2000)) : absl::ZeroDuration();
          ASSERT_TRUE(stream->Submit(id, requests[draw(3)], timeout));
          if (draw(3) == 0) {
            ASSERT_TRUE(stream->Cancel(draw(count)));
          }
        }
        const uint32_t end = draw(3);  // all answers, some, none
        for (uint32_t i = 0; end == 1 && i < count / 2; ++i) {
          ASSERT_TRUE(stream->Next().has_value());
        }
        if (end != 0) continue;
        stream->Close();
        EXPECT_EQ(Drain(*stream).size(), count);
        EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == idle; })) << Held(daemon, *client);
}

}  // namespace
}  // namespace tetrad::e2e
