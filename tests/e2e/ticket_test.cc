// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tickets: requests that outlive their call, their connection and their client,
// run once, and whose outcome is the same for all who ask.
#include <csignal>
#include <limits>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "clients/cpp/error_info.h"
#include "tests/e2e/doomed_process.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/stopped_threads.h"
#include "tests/e2e/unread_call.h"

namespace tetrad::e2e {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr int kOk = 0, kCancelled = 1, kDeadlineExceeded = 4, kNotFound = 5;
constexpr int64_t kOutcomeSlackBytes = 16 << 10;  // reserved beside the output

v1::SubmitRequest SubmitOf(const v1::ExecuteRequest& execute, const std::string& key = {}) {
  v1::SubmitRequest request;
  *request.mutable_execute() = execute;
  request.set_idempotency_key(key);
  return request;
}

// The name of its ticket; a failure fails the test.
std::string Submit(Client& client, const v1::SubmitRequest& request) {
  const auto submitted = client.Submit(request);
  EXPECT_TRUE(submitted.ok()) << submitted.status();
  return submitted.ok() ? submitted->ticket() : "";
}

absl::StatusOr<v1::WaitResponse> Wait(Client& client, const std::string& ticket,
                                      double seconds = 60, bool forget = false) {
  v1::WaitRequest request;
  request.set_ticket(ticket);
  request.set_timeout_seconds(seconds);
  request.set_forget(forget);
  return client.Wait(request);
}

// Its outcome; a failure fails the test.
v1::WaitResponse Outcome(Client& client, const std::string& ticket) {
  auto outcome = Wait(client, ticket);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome.ok() && outcome->done());
  return outcome.ok() ? *outcome : v1::WaitResponse();
}

// A daemon with weights, and a request for them.
struct Rig {
  explicit Rig(const std::vector<std::string>& flags = {}, const GroupShape& shape = {3, 24, 64})
      : daemon(flags), stubs(daemon), operands(std::span(&shape, 1), {.seed = 9}) {
    Register(stubs, operands, "w");
    execute = RequestOf(operands, "w");
    client = ConnectClient(daemon.socket());
  }
  void ExpectBits(const v1::WaitResponse& outcome) {
    EXPECT_EQ(outcome.code(), kOk) << outcome.message();
    const Verdict verdict = Judge(operands, outcome.response().output());
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
    EXPECT_GT(verdict.elements, 0);
  }
  bool NothingLeft() {
    return Eventually([&] {
      const auto status = client->GetStatus();
      return status.ok() && status->tickets() == 0 && status->ticket_bytes() == 0 &&
             status->in_flight() == 0 && Metric(daemon, "tetrad_call_bytes") == 0;
    });
  }
  Daemon daemon;
  Stubs stubs;
  Operands operands;
  v1::ExecuteRequest execute;
  std::unique_ptr<Client> client;
};

TEST(TicketTest, AnOutcomeOutlivesTheConnectionAndIsTheSameForAll) {
  Rig rig;
  const std::string ticket = Submit(*rig.client, SubmitOf(rig.execute));
  rig.client = ConnectClient(rig.daemon.socket());
  const v1::WaitResponse first = Outcome(*rig.client, ticket);
  rig.ExpectBits(first);
  EXPECT_GT(first.response().timings().device_us(), 0);
  EXPECT_EQ(Outcome(*rig.client, ticket).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(*rig.client->Cancel(ticket), false) << "it is done";
  std::vector<std::string> told;
  const std::string names[] = {ticket, ticket};
  EXPECT_TRUE(rig.client
                  ->Watch(names,
                          [&](const v1::TicketEvent& event) {
                            EXPECT_EQ(event.code(), kOk);
                            told.push_back(event.ticket());
                          })
                  .ok());
  EXPECT_THAT(told, ::testing::ElementsAre(ticket, ticket));
  EXPECT_EQ(rig.client->GetStatus()->tickets(), 1);
  EXPECT_EQ(Metric(rig.daemon, "tetrad_tickets{state=\"done\"}"), 1);
  EXPECT_EQ(Metric(rig.daemon, "tetrad_ticket_outcomes_total{code=\"OK\"}"), 1);
  // Forgotten once it was answered; then there is none of that name.
  EXPECT_TRUE(Wait(*rig.client, ticket, 0, /*forget=*/true)->done());
  EXPECT_TRUE(rig.NothingLeft());
  EXPECT_EQ(Wait(*rig.client, ticket).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(rig.client->Cancel(ticket).status().code(), StatusCode::kNotFound);
}

TEST(TicketTest, OneKeyFromManyConnectionsRunsOnce) {
  Rig rig;
  constexpr int kConnections = 16;
  std::mutex mutex;
  std::set<std::string> tickets, outcomes;  // guarded by mutex
  std::atomic<int> fresh{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kConnections; ++i) {
    threads.emplace_back([&] {
      const auto client = ConnectClient(rig.daemon.socket());
      const auto submitted = client->Submit(SubmitOf(rig.execute, "job:1"));
      ASSERT_TRUE(submitted.ok()) << submitted.status();
      if (!submitted->repeated()) ++fresh;
      const v1::WaitResponse outcome = Outcome(*client, submitted->ticket());
      std::lock_guard lock(mutex);
      tickets.insert(submitted->ticket());
      outcomes.insert(outcome.SerializeAsString());
    });
  }
  threads.clear();
  EXPECT_EQ(fresh, 1);
  EXPECT_EQ(tickets.size(), 1u);
  ASSERT_EQ(outcomes.size(), 1u);
  v1::WaitResponse outcome;
  ASSERT_TRUE(outcome.ParseFromString(*outcomes.begin()));
  rig.ExpectBits(outcome);
  EXPECT_EQ(Metric(rig.daemon, "tetrad_device_seconds_count"), 1);
  EXPECT_EQ(Metric(rig.daemon, "tetrad_ticket_repeats_total"), kConnections - 1);
}

TEST(TicketTest, AKeyIsOneRequestOfOneClient) {
  Rig rig;
  const std::string ticket = Submit(*rig.client, SubmitOf(rig.execute, "k"));
  v1::SubmitRequest again = SubmitOf(rig.execute, "k");
  again.set_timeout_seconds(5);  // the times of a repetition do not matter
  EXPECT_EQ(Submit(*rig.client, again), ticket);
  v1::SubmitRequest other = SubmitOf(rig.execute, "k");
  other.mutable_execute()->mutable_inline_operands()->mutable_activations()->front() ^= 1;
  EXPECT_EQ(rig.client->Submit(other).status().code(), StatusCode::kAlreadyExists);
  other = SubmitOf(rig.execute, "k");
  other.mutable_execute()->set_priority(v1::PRIORITY_HIGH);
  EXPECT_EQ(rig.client->Submit(other).status().code(), StatusCode::kAlreadyExists);
  // The same key of another client is another key.
  const auto tcp = ConnectClient(rig.daemon.tcp());
  const std::string theirs = Submit(*tcp, other);
  EXPECT_NE(theirs, ticket);
  rig.ExpectBits(Outcome(*rig.client, ticket));
  rig.ExpectBits(Outcome(*tcp, theirs));
  // And none of them may use the other's ticket, or learn that it is one.
  for (const auto& [client, foreign] :
       {std::pair(tcp.get(), ticket), std::pair(rig.client.get(), theirs)}) {
    EXPECT_EQ(Wait(*client, foreign).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(client->Cancel(foreign).status().code(), StatusCode::kNotFound);
    int code = 0;
    const std::string names[] = {foreign};
    EXPECT_TRUE(
        client->Watch(names, [&](const v1::TicketEvent& event) { code = event.code(); }).ok());
    EXPECT_EQ(code, kNotFound);
  }
  // Forgotten, the key is free.
  Wait(*rig.client, ticket, 0, /*forget=*/true).IgnoreError();
  EXPECT_TRUE(Eventually([&] { return rig.client->GetStatus()->tickets() == 1; }));
  EXPECT_FALSE(rig.client->Submit(SubmitOf(rig.execute, "k"))->repeated());
}

TEST(TicketTest, WhatExecuteRefusesSubmitRefusesAndLeavesNoTicket) {
  Rig rig({"--max-inline-bytes", "4096"});
  const std::vector<std::function<void(v1::ExecuteRequest&)>> kSpoils = {
      [](v1::ExecuteRequest& r) { r.Clear(); },
      [](v1::ExecuteRequest& r) { r.clear_operands(); },
      [](v1::ExecuteRequest& r) { r.set_priority(static_cast<v1::Priority>(9)); },
      [](v1::ExecuteRequest& r) { r.mutable_inline_operands()->mutable_activations()->pop_back(); },
      [](v1::ExecuteRequest& r) { r.mutable_signature()->set_weights("none"); },
      [](v1::ExecuteRequest& r) { r.set_plan("plan-0-0-0"); },
      [](v1::ExecuteRequest& r) {
        r.set_plan("plan-0000000000000001-0000000000000001-0000000000000001");
      },
      [](v1::ExecuteRequest& r) { r.mutable_signature()->mutable_exact()->set_m(0, 4096); },
  };
  std::set<StatusCode> codes;
  for (const auto& spoil : kSpoils) {
    v1::ExecuteRequest bad = rig.execute;
    spoil(bad);
    const absl::Status executed = rig.client->Execute(bad).status();
    for (const char* key : {"", "key"}) {
      const absl::Status submitted = rig.client->Submit(SubmitOf(bad, key)).status();
      EXPECT_EQ(submitted.code(), executed.code());
      EXPECT_EQ(submitted.message(), executed.message());
      EXPECT_EQ(ErrorInfoOf(submitted)->reason, ErrorInfoOf(executed)->reason);
    }
    EXPECT_FALSE(executed.ok());
    codes.insert(executed.code());
  }
  EXPECT_GE(codes.size(), 3u);
  v1::SubmitRequest late = SubmitOf(rig.execute);
  late.set_timeout_seconds(1e-9);
  EXPECT_EQ(rig.client->Submit(late).status().code(), StatusCode::kDeadlineExceeded);
  const auto invalid = [&](const std::function<void(v1::SubmitRequest&)>& spoil,
                           const std::string& text) {
    v1::SubmitRequest bad = SubmitOf(rig.execute);
    spoil(bad);
    const absl::Status status = rig.client->Submit(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  invalid([](v1::SubmitRequest& r) { r.clear_execute(); }, "execute");
  invalid([](v1::SubmitRequest& r) { r.set_idempotency_key("a b"); }, "idempotency_key");
  invalid([](v1::SubmitRequest& r) { r.set_idempotency_key(std::string(129, 'k')); },
          "idempotency_key");
  invalid([](v1::SubmitRequest& r) { r.set_timeout_seconds(-1); }, "timeout_seconds");
  invalid([&](v1::SubmitRequest& r) { r.set_timeout_seconds(kNan); }, "timeout_seconds");
  invalid([&](v1::SubmitRequest& r) { r.set_keep_seconds(-kNan); }, "keep_seconds");
  EXPECT_EQ(Wait(*rig.client, "t").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.client->Watch({}, [](const v1::TicketEvent&) {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(rig.NothingLeft());
  EXPECT_EQ(Metric(rig.daemon, "tetrad_tickets{state=\"admitting\"}"), 0);
  // The longest key, and the key of a refused one: free.
  EXPECT_FALSE(rig.client->Submit(SubmitOf(rig.execute, std::string(128, 'k')))->repeated());
  EXPECT_FALSE(rig.client->Submit(SubmitOf(rig.execute, "key"))->repeated());
}

TEST(TicketTest, CancelAndTimeLimitsOfWhatRunsAndWhatWaits) {
  Rig rig({"--threads", "1"}, {512, 1024, 1024});  // too long for two on the device to be little
  Outcome(*rig.client, Submit(*rig.client, SubmitOf(rig.execute)));  // the plan is there
  StoppedThreads device(rig.daemon.pid(), kDeviceThread);
  const std::string running = Submit(*rig.client, SubmitOf(rig.execute));
  const std::string next = Submit(*rig.client, SubmitOf(rig.execute));
  const std::string queued = Submit(*rig.client, SubmitOf(rig.execute));
  v1::SubmitRequest brief = SubmitOf(rig.execute);
  brief.set_timeout_seconds(0.5);
  const std::string late = Submit(*rig.client, brief);
  EXPECT_TRUE(Eventually([&] { return Metric(rig.daemon, "tetrad_launches_queued") <= 1; }))
      << "one ends at its time limit";
  EXPECT_EQ(Outcome(*rig.client, late).code(), kDeadlineExceeded);
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(Wait(*rig.client, running, 0)->done());
  EXPECT_FALSE(Wait(*rig.client, running, 0.2)->done());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(200));
  // One that waits hears of it at once.
  std::jthread waiter([&] {
    const auto client = ConnectClient(rig.daemon.socket());
    EXPECT_EQ(Outcome(*client, running).code(), kCancelled);
  });
  ASSERT_TRUE(Eventually([&] {
    return Metric(rig.daemon, "tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Wait\"}") == 1;
  }));
  EXPECT_EQ(*rig.client->Cancel(queued), true);
  EXPECT_EQ(*rig.client->Cancel(running), true);
  EXPECT_EQ(*rig.client->Cancel(running), false);
  waiter.join();
  EXPECT_EQ(Outcome(*rig.client, queued).code(), kCancelled);
  EXPECT_TRUE(Eventually([&] { return Metric(rig.daemon, "tetrad_launches_in_flight") == 2; }))
      << "what the device has it keeps";
  device.Resume();
  rig.ExpectBits(Outcome(*rig.client, next));
  EXPECT_EQ(Outcome(*rig.client, running).code(), kCancelled) << "its result is dropped";
  for (const std::string& ticket : {running, next, queued, late}) {
    Wait(*rig.client, ticket, 0, /*forget=*/true).IgnoreError();
  }
}

// Neither the call's end nor its deadline ends a request with a key; one without
// could be asked for by nobody.
TEST(TicketTest, ASubmitWhoseCallEndsGoesOnIfItHasAKey) {
  Rig rig;
  for (const std::string key : {"key", ""}) {
    StoppedThreads workers(rig.daemon.pid(), kWorkThreads);
    EXPECT_EQ(
        rig.client->Submit(SubmitOf(rig.execute, key), {.deadline = absl::Seconds(1), .cancel = {}})
            .status()
            .code(),
        StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Metric(rig.daemon, "tetrad_tickets{state=\"admitting\"}"), 1);
    // The daemon notices by itself at the same time; nothing shows when.
    absl::SleepFor(absl::Milliseconds(300));
    workers.Resume();
    if (key.empty()) {
      EXPECT_TRUE(rig.NothingLeft());
      continue;
    }
    const auto again = rig.client->Submit(SubmitOf(rig.execute, key));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(again->repeated());
    rig.ExpectBits(Outcome(*rig.client, again->ticket()));
    EXPECT_TRUE(Wait(*rig.client, again->ticket(), 0, /*forget=*/true)->done());
    EXPECT_TRUE(rig.NothingLeft());
  }
  EXPECT_EQ(Metric(rig.daemon, "tetrad_device_seconds_count"), 1);
}

TEST(TicketTest, AnExpiredOutcomeGivesItsMemoryBackAlthoughNobodyCalls) {
  Rig rig({}, {256, 8192, 32});  // 4 MiB
  v1::SubmitRequest request = SubmitOf(rig.execute, "k");
  request.set_keep_seconds(4);
  const std::string ticket = Submit(*rig.client, request);
  const v1::WaitResponse outcome = Outcome(*rig.client, ticket);
  EXPECT_GE(Metric(rig.daemon, "tetrad_ticket_bytes"), 4 << 20);
  rig.ExpectBits(outcome);
  EXPECT_TRUE(Eventually([&] { return Metric(rig.daemon, "tetrad_ticket_bytes") == 0; }));
  EXPECT_EQ(Metric(rig.daemon, "tetrad_tickets{state=\"done\"}"), 0);
  EXPECT_EQ(Wait(*rig.client, ticket).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(rig.client->Submit(request)->repeated());
}

TEST(TicketTest, LimitsOfNumberAtAndOver) {
  Rig rig({"--client-tickets", "3", "--max-tickets", "4"});
  for (int i = 0; i < 3; ++i) Submit(*rig.client, SubmitOf(rig.execute, absl::StrCat("k", i)));
  const absl::Status quota = rig.client->Submit(SubmitOf(rig.execute)).status();
  EXPECT_EQ(quota.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(quota.message()), HasSubstr("client_tickets"));
  EXPECT_TRUE(rig.client->Submit(SubmitOf(rig.execute, "k1"))->repeated()) << "needs no room";
  const auto tcp = ConnectClient(rig.daemon.tcp());
  const std::string theirs = Submit(*tcp, SubmitOf(rig.execute));
  const absl::Status full = tcp->Submit(SubmitOf(rig.execute)).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_tickets"));
  EXPECT_TRUE(Outcome(*tcp, theirs).done());
  EXPECT_TRUE(Wait(*tcp, theirs, 0, /*forget=*/true)->done());
  EXPECT_TRUE(Eventually([&] { return rig.client->GetStatus()->tickets() == 3; }));
  Submit(*tcp, SubmitOf(rig.execute));
  const std::vector<std::string> four(4, theirs);
  EXPECT_EQ(tcp->Watch(four, [](const v1::TicketEvent&) {}).code(), StatusCode::kInvalidArgument);
}

// The library keeps the request of a Watch as long as that lasts.
TEST(TicketTest, RequestsOfWatchesAreCounted) {
  Rig rig({"--call-bytes", "100000"});
  const std::vector<std::string> names(1000, std::string(120, 'n'));
  const absl::Status refused = rig.client->Watch(names, [](const v1::TicketEvent&) {});
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("call_bytes"));
  const std::vector<std::string> fewer(100, std::string(120, 'n'));
  EXPECT_TRUE(rig.client->Watch(fewer, [](const v1::TicketEvent&) {}).ok());
  EXPECT_TRUE(Eventually([&] { return Metric(rig.daemon, "tetrad_call_bytes") == 0; }));
}

// One client has half of ticket_bytes, for its request and its outcome.
TEST(TicketTest, LimitOfBytesAtAndOverByOne) {
  const GroupShape shape{128, 2048, 32};  // 512 KiB
  const Operands operands(std::span(&shape, 1), {.seed = 9});
  const v1::SubmitRequest request = SubmitOf(RequestOf(operands, "w"));
  const int64_t output = int64_t{128} * 2048 * OutputElementBytes(operands.types().c_type);
  const int64_t needed = static_cast<int64_t>(request.ByteSizeLong()) + output + kOutcomeSlackBytes;
  for (const int64_t missing : {0, 1}) {
    Rig rig({"--ticket-bytes", absl::StrCat(2 * (needed - missing))}, shape);
    const auto submitted = rig.client->Submit(request);
    if (missing == 0) {
      ASSERT_TRUE(submitted.ok()) << submitted.status();
      rig.ExpectBits(Outcome(*rig.client, submitted->ticket()));
      // The outcome alone is less, but leaves no room for another.
      const absl::Status second = rig.client->Submit(request).status();
      EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(second.message()), HasSubstr("ticket_bytes"));
      EXPECT_TRUE(ConnectClient(rig.daemon.tcp())->Submit(request).ok());
      Wait(*rig.client, submitted->ticket(), 0, /*forget=*/true).IgnoreError();
    } else {
      EXPECT_EQ(submitted.status().code(), StatusCode::kInvalidArgument) << submitted.status();
      EXPECT_TRUE(rig.NothingLeft());
    }
  }
}

// Replies of a large outcome that nobody reads: they share its bytes, which count
// until the last is gone, and the outcome is not forgotten by them.
TEST(TicketTest, WaitsThatNobodyReadsShareTheOutcome) {
  Rig rig({"--ticket-bytes", "100000000"}, {128, 49152, 32});  // 12 MiB
  const std::string ticket = Submit(*rig.client, SubmitOf(rig.execute));
  rig.ExpectBits(Outcome(*rig.client, ticket));
  const double bytes = Metric(rig.daemon, "tetrad_ticket_bytes");
  ASSERT_TRUE(Eventually([&] { return Metric(rig.daemon, "tetrad_call_bytes") == 0; }));
  const double before = Metric(rig.daemon, "process_resident_memory_bytes");
  constexpr int kReaders = 12;
  v1::WaitRequest request;
  request.set_ticket(ticket);
  request.set_forget(true);
  std::vector<std::unique_ptr<UnreadCall>> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.push_back(
        std::make_unique<UnreadCall>(rig.daemon.socket(), "/tetrad.v1.Gemm/Wait", request));
  }
  const auto waiting = [&] {
    return Metric(rig.daemon, "tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Wait\"}");
  };
  ASSERT_TRUE(Eventually([&] { return waiting() == kReaders; }));
  EXPECT_EQ(Metric(rig.daemon, "tetrad_ticket_bytes"), bytes);
  // Copies would be 144 MiB; each connection has what its window lets through.
  EXPECT_LT(Metric(rig.daemon, "process_resident_memory_bytes") - before, 64 << 20);
  for (auto& reader : readers) {
    reader->Cancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  readers.clear();  // with their connections, on which nobody would send anything any more
  ASSERT_TRUE(Eventually([&] { return waiting() == 0; }));
  EXPECT_TRUE(Wait(*rig.client, ticket, 0)->done()) << "no client has the answer";
  // One is left unread while the ticket goes.
  auto last = std::make_unique<UnreadCall>(rig.daemon.socket(), "/tetrad.v1.Gemm/Wait", request);
  ASSERT_TRUE(Eventually([&] { return waiting() == 1; }));
  EXPECT_TRUE(Wait(*rig.client, ticket, 0, /*forget=*/true)->done());
  EXPECT_TRUE(Eventually([&] { return rig.client->GetStatus()->tickets() == 0; }));
  EXPECT_EQ(rig.client->GetStatus()->ticket_bytes(), bytes);
  last.reset();
  EXPECT_TRUE(rig.NothingLeft());
}

TEST(TicketTest, AClientKilledAfterSubmitLeavesItsOutcome) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const GroupShape kShape[] = {{1, 4096, 2048}};
  const std::string weights =
      Register(stubs, Operands(kShape, {.kind = DataKind::kContest}), "doomed");
  DoomedProcess doomed(DOOMED_CLIENT, daemon.socket(), "submit", weights);
  doomed.Kill();
  const auto client = ConnectClient(daemon.socket());
  const v1::WaitResponse outcome = Outcome(*client, doomed.announced());
  EXPECT_EQ(outcome.code(), kOk) << outcome.message();
  EXPECT_EQ(outcome.response().output(), std::string(size_t{256} * 4096 * 4, '\0'));
}

}  // namespace
}  // namespace tetrad::e2e
