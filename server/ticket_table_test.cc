// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/ticket_table.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

using Wake = TicketTable::Wake;

constexpr int64_t kKeep = 100;

RequestDigest Digest(uint8_t value) {
  RequestDigest digest{};
  digest.fill(value);
  return digest;
}

TicketOutcomePtr Outcome(int code, std::string reply = "reply") {
  auto outcome = std::make_shared<TicketOutcome>();
  outcome->code = code;
  outcome->reply = std::move(reply);
  return outcome;
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail.has_value() ? std::optional(detail->reason) : std::nullopt;
}

// A table and what its callbacks said.
class TicketTableTest : public ::testing::Test {
 protected:
  TicketNumber Begin(const std::string& client, const std::string& key = {}, uint8_t digest = 1,
                     Instant now = 0) {
    answers.emplace_back();
    const size_t index = answers.size() - 1;
    return table.Begin(
        {client, key, Digest(digest), kKeep},
        [this, index](const absl::StatusOr<TicketTable::Admission>& admission) {
          EXPECT_FALSE(answers[index].has_value());
          answers[index] = admission;
        },
        now);
  }
  // One that is under way; its name.
  std::string Submit(const std::string& client, TicketNumber* number = nullptr) {
    const TicketNumber made = Begin(client);
    table.Admit(made);
    if (number != nullptr) *number = made;
    return answers.back()->value().ticket;
  }
  absl::StatusOr<WaiterId> Wait(const std::string& client, const std::string& ticket,
                                Instant until = kNever, Instant now = 0) {
    wakes.emplace_back();
    const size_t index = wakes.size() - 1;
    return table.Wait(
        client, ticket, until,
        [this, index](Wake wake, const TicketOutcomePtr& outcome) {
          EXPECT_FALSE(wakes[index].has_value());
          wakes[index] = {wake, outcome};
        },
        now);
  }
  int64_t Count() const {
    const TicketTable::Stats stats = table.stats();
    return stats.admitting + stats.under_way + stats.done;
  }

  TicketTable table{{.tickets = 4, .client_tickets = 3}, 7};
  std::vector<std::optional<absl::StatusOr<TicketTable::Admission>>> answers;
  std::vector<std::optional<std::pair<Wake, TicketOutcomePtr>>> wakes;
};

TEST_F(TicketTableTest, ATicketIsAnsweredWhenAdmittedAndKeepsItsOutcome) {
  const TicketNumber number = Begin("a");
  EXPECT_FALSE(answers[0].has_value());
  EXPECT_EQ(table.stats().admitting, 1);
  table.Admit(number);
  ASSERT_TRUE(answers[0].has_value());
  const std::string ticket = answers[0]->value().ticket;
  EXPECT_FALSE(answers[0]->value().repeated);
  ASSERT_TRUE(Wait("a", ticket).ok());
  EXPECT_FALSE(wakes[0].has_value());
  const TicketOutcomePtr outcome = Outcome(0);
  EXPECT_TRUE(table.End(number, outcome, 10));
  EXPECT_EQ(wakes[0]->first, Wake::kDone);
  EXPECT_EQ(wakes[0]->second, outcome);
  // Again, and by several: the same.
  EXPECT_EQ(*Wait("a", ticket, 0, 11), WaiterId::kNone);
  EXPECT_EQ(*Wait("a", ticket, kNever, 10 + kKeep - 1), WaiterId::kNone);
  EXPECT_EQ(wakes[1]->second, outcome);
  EXPECT_EQ(wakes[2]->second, outcome);
  EXPECT_EQ(table.stats().done, 1);
}

TEST_F(TicketTableTest, ARefusedOneLeavesNothing) {
  const TicketNumber number = Begin("a", "key");
  EXPECT_EQ(Begin("a", "key"), TicketNumber::kNone);  // comes meanwhile, hears the same
  table.Refuse(number, absl::ResourceExhaustedError("queue"));
  EXPECT_EQ(answers[0]->status().message(), "queue");
  EXPECT_EQ(answers[1]->status().message(), "queue");
  EXPECT_EQ(Count(), 0);
  EXPECT_NE(Begin("a", "key", /*digest=*/2), TicketNumber::kNone);
}

TEST_F(TicketTableTest, AKeyFindsItsTicketInEveryState) {
  const TicketNumber number = Begin("a", "key");
  EXPECT_EQ(Begin("a", "key"), TicketNumber::kNone);
  EXPECT_FALSE(answers[1].has_value());
  table.Admit(number);
  const std::string ticket = answers[0]->value().ticket;
  EXPECT_EQ(answers[1]->value().ticket, ticket);
  EXPECT_TRUE(answers[1]->value().repeated);
  EXPECT_EQ(Begin("a", "key"), TicketNumber::kNone);
  EXPECT_EQ(answers[2]->value().ticket, ticket);
  table.End(number, Outcome(0), 5);
  EXPECT_EQ(Begin("a", "key", 1, 5 + kKeep - 1), TicketNumber::kNone);
  EXPECT_TRUE(answers[3]->value().repeated);
  EXPECT_EQ(table.stats().repeats, 3);
  // Expired: the key is as new.
  EXPECT_NE(Begin("a", "key", 2, 5 + kKeep), TicketNumber::kNone);
}

TEST_F(TicketTableTest, AKeyIsOfOneRequestAndOneClient) {
  table.Admit(Begin("a", "key", 1));
  EXPECT_EQ(Begin("a", "key", 2), TicketNumber::kNone);
  EXPECT_EQ(answers[1]->status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(answers[1]->status()), Reason::kKeyReused);
  EXPECT_NE(Begin("b", "key", 2), TicketNumber::kNone);
  EXPECT_NE(Begin("a", "other", 2), TicketNumber::kNone);
  EXPECT_EQ(table.stats().repeats, 0);
}

TEST_F(TicketTableTest, LimitsAtUnderAndOver) {
  for (int i = 0; i < 3; ++i) EXPECT_NE(Begin("a"), TicketNumber::kNone);
  EXPECT_EQ(Begin("a"), TicketNumber::kNone);
  EXPECT_EQ(ReasonOf(answers[3]->status()), Reason::kQuota);
  const TicketNumber fourth = Begin("b");
  EXPECT_NE(fourth, TicketNumber::kNone);
  EXPECT_EQ(Begin("b"), TicketNumber::kNone);
  EXPECT_EQ(ReasonOf(answers[5]->status()), Reason::kTableFull);
  EXPECT_EQ(answers[5]->status().code(), absl::StatusCode::kResourceExhausted);
  table.Refuse(fourth, absl::AbortedError(""));
  EXPECT_NE(Begin("b"), TicketNumber::kNone);
}

TEST_F(TicketTableTest, ExpiredOnesMakeRoomAlthoughNobodySteps) {
  TicketNumber number{};
  for (int i = 0; i < 3; ++i) {
    Submit("a", &number);
    table.End(number, Outcome(0), 0);
  }
  EXPECT_EQ(Begin("a", "", 1, kKeep - 1), TicketNumber::kNone);
  EXPECT_NE(Begin("a", "", 1, kKeep), TicketNumber::kNone);
  EXPECT_EQ(Count(), 1);
}

TEST_F(TicketTableTest, NobodyElsesAndNoneAreAnsweredAlike) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  const absl::Status others = Wait("b", ticket).status();
  EXPECT_EQ(others.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(others), Reason::kTicketNotFound);
  std::string guessed = ticket;
  guessed.back() = guessed.back() == '0' ? '1' : '0';
  EXPECT_EQ(Wait("a", guessed).status(), others);
  EXPECT_EQ(table.Cancel("b", ticket, Outcome(1), 0).status(), others);
  table.End(number, Outcome(0), 0);
  table.Forget("b", ticket);
  table.Forget("a", guessed);
  EXPECT_EQ(Count(), 1);
  table.Forget("a", ticket);
  EXPECT_EQ(Count(), 0);
  EXPECT_EQ(Wait("a", ticket).status(), others);
  // Of an earlier daemon, and no name at all.
  const TicketTable earlier({}, 8);
  const HandleNames names("ticket", 8, "");
  EXPECT_EQ(Wait("a", names.Make({1, 2})).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Wait("a", "ticket").status().code(), absl::StatusCode::kInvalidArgument);
  for (const auto& wake : wakes) EXPECT_FALSE(wake.has_value());
}

TEST_F(TicketTableTest, CancelIsTheOutcomeFromThenOn) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  ASSERT_TRUE(Wait("a", ticket).ok());
  const TicketOutcomePtr cancelled = Outcome(1);
  EXPECT_EQ(*table.Cancel("a", ticket, cancelled, 0), number);
  EXPECT_EQ(wakes[0]->second, cancelled);
  EXPECT_FALSE(table.End(number, Outcome(0), 1)) << "the result comes too late";
  EXPECT_EQ(*table.Cancel("a", ticket, Outcome(1), 1), TicketNumber::kNone);
  ASSERT_TRUE(Wait("a", ticket).ok());
  EXPECT_EQ(wakes[1]->second, cancelled);
  // Also when the ticket itself is gone by then.
  table.Forget("a", ticket);
  EXPECT_FALSE(table.End(number, Outcome(0), 1));
}

// The client of one without a key went away before it heard the ticket.
TEST_F(TicketTableTest, AnAbandonedOneKeepsNoOutcome) {
  TicketNumber done{}, running{};
  Submit("a", &done);
  Submit("a", &running);
  EXPECT_TRUE(table.End(done, Outcome(0), 1));
  EXPECT_EQ(Count(), 2);
  table.Abandon(done);
  EXPECT_EQ(Count(), 1);
  table.Abandon(running);
  EXPECT_EQ(Count(), 1) << "it still runs";
  EXPECT_TRUE(table.End(running, Outcome(0), 2));
  table.Step(2);
  EXPECT_EQ(Count(), 0);
  table.Abandon(running);  // no more there
}

TEST_F(TicketTableTest, WaitsEndInTimeAndOnce) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  EXPECT_EQ(*Wait("a", ticket, 0, 0), WaiterId::kNone);
  EXPECT_EQ(wakes[0]->first, Wake::kTimeOver);
  ASSERT_TRUE(Wait("a", ticket, 10).ok());
  ASSERT_TRUE(Wait("a", ticket, 20).ok());
  const WaiterId given_up = *Wait("a", ticket, 15);
  EXPECT_EQ(table.due(), 10);
  EXPECT_EQ(table.Step(9), 10);
  EXPECT_FALSE(wakes[1].has_value());
  EXPECT_EQ(table.Step(10), 15);
  EXPECT_EQ(wakes[1]->first, Wake::kTimeOver);
  EXPECT_EQ(wakes[1]->second, nullptr);
  EXPECT_TRUE(table.StopWaiting(given_up));
  EXPECT_FALSE(table.StopWaiting(given_up));
  EXPECT_EQ(table.due(), 20);
  table.End(number, Outcome(0), 12);
  EXPECT_EQ(wakes[2]->first, Wake::kDone);
  EXPECT_FALSE(wakes[3].has_value());
  EXPECT_EQ(table.due(), 12 + kKeep);
  EXPECT_EQ(table.Step(12 + kKeep), kNever);
  EXPECT_EQ(Count(), 0);
}

TEST_F(TicketTableTest, ExpiryLetsGoOfTheOutcomeUnlessSomebodyHasIt) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  const auto bytes = ClientBytes::Create("ticket_bytes", {.all = 100, .client = 100});
  auto outcome = std::make_shared<TicketOutcome>();
  outcome->bytes = *bytes->Take("a", 60);
  table.End(number, std::move(outcome), 0);
  ASSERT_TRUE(Wait("a", ticket).ok());  // as a reply that is being sent
  table.Step(kKeep);
  EXPECT_EQ(Wait("a", ticket, kNever, kKeep).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(bytes->used_bytes(), 60);
  wakes.clear();
  EXPECT_EQ(bytes->used_bytes(), 0);
}

TEST_F(TicketTableTest, CloseEndsEveryWait) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  ASSERT_TRUE(Wait("a", ticket, 50).ok());
  ASSERT_TRUE(Wait("a", ticket).ok());
  table.Close();
  EXPECT_EQ(wakes[0]->first, Wake::kClosed);
  EXPECT_EQ(wakes[1]->first, Wake::kClosed);
  EXPECT_EQ(*Wait("a", ticket), WaiterId::kNone);
  EXPECT_EQ(wakes[2]->first, Wake::kClosed);
  EXPECT_EQ(table.due(), kNever);
  table.End(number, Outcome(0), 0);
  ASSERT_TRUE(Wait("a", ticket).ok());
  EXPECT_EQ(wakes[3]->first, Wake::kDone);
}

// Callbacks may call the table.
TEST_F(TicketTableTest, CallbacksHoldNoLock) {
  TicketNumber number{};
  const std::string ticket = Submit("a", &number);
  bool forgotten = false;
  ASSERT_TRUE(table
                  .Wait(
                      "a", ticket, kNever,
                      [&](Wake, const TicketOutcomePtr&) {
                        table.Forget("a", ticket);
                        forgotten = table.stats().done == 0;
                      },
                      0)
                  .ok());
  table.End(number, Outcome(0), 0);
  EXPECT_TRUE(forgotten);
}

}  // namespace
}  // namespace tetrad
