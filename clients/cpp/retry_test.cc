// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/retry.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/cord.h"

#include "clients/cpp/failing_daemon.h"
#include "clients/cpp/status_mapping.h"

namespace tetrad {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using absl::StatusCode;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

absl::Status Failure(StatusCode code, const std::string& details = {}) {
  absl::Status status(code, "failed");
  if (!details.empty()) status.SetPayload(kStatusDetailsUrl, absl::Cord(details));
  return status;
}

std::optional<absl::Duration> FirstDelay(Rpc rpc, const absl::Status& status, bool sent = true,
                                         double chance = 0) {
  return CallRetries(rpc, 4, kStart + Seconds(60)).After(status, sent, kStart, chance);
}

TEST(RetryRulesTest, EveryMethodOfTheSchemaHasItsRule) {
  std::multiset<std::string> schema, rules;
  for (const google::protobuf::Descriptor* message :
       {v1::GetStatusRequest::descriptor(), v1::UploadHeader::descriptor(),
        v1::ExecuteRequest::descriptor(), v1::BlockInfo::descriptor(),
        v1::DrainRequest::descriptor()}) {
    for (int s = 0; s < message->file()->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *message->file()->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        schema.insert(service.method(m)->full_name());
      }
    }
  }
  for (const RetryRule& rule : RetryRules()) rules.insert(std::string(rule.method));
  // Those whose request makes the difference have two.
  for (const char* twice : {"Prepare", "Submit", "Wait"}) {
    schema.insert(std::string("tetrad.v1.Gemm.") + twice);
  }
  EXPECT_EQ(rules, schema);
}

TEST(CallRetriesTest, WhatMayBeRepeatedDependsOnMethodCodeAndReason) {
  const std::string later = ErrorDetails("QUEUE_FULL", Milliseconds(1));
  const std::string draining = ErrorDetails("DRAINING", Milliseconds(1));
  const std::string lost = ErrorDetails("DEVICE_LOST", Milliseconds(1));
  const struct {
    absl::Status status;
    bool sent;
    bool never, if_refused, always;
  } kCases[] = {
      {Failure(StatusCode::kUnavailable), true, false, false, true},
      {Failure(StatusCode::kUnavailable), false, false, true, true},
      {Failure(StatusCode::kUnavailable, draining), true, false, true, true},
      {Failure(StatusCode::kUnavailable, lost), true, false, false, true},
      {Failure(StatusCode::kUnavailable, "\xFFnot a message"), true, false, false, true},
      {Failure(StatusCode::kResourceExhausted), true, false, false, false},
      {Failure(StatusCode::kResourceExhausted, later), true, false, true, true},
      {Failure(StatusCode::kResourceExhausted, ErrorDetails("QUEUE_FULL")), true, false, false,
       false},
      // No delay makes these another thing the next time.
      {Failure(StatusCode::kInternal, later), true, false, false, false},
      {Failure(StatusCode::kInvalidArgument, later), true, false, false, false},
      {Failure(StatusCode::kDeadlineExceeded, later), true, false, false, false},
      {Failure(StatusCode::kCancelled, later), true, false, false, false},
      {Failure(StatusCode::kAborted, draining), true, false, false, false},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.status.ToString());
    for (const RetryRule& rule : RetryRules()) {
      const bool expected = rule.repeat == Repeat::kNever       ? test.never
                            : rule.repeat == Repeat::kIfRefused ? test.if_refused
                                                                : test.always;
      EXPECT_EQ(FirstDelay(rule.rpc, test.status, test.sent).has_value(), expected) << rule.method;
    }
  }
}

TEST(CallRetriesTest, DelaysDoubleUpToALimitAndSpread) {
  for (const double chance : {0.0, 0.25, 0.999}) {
    CallRetries calls(Rpc::kGetStatus, 100, absl::InfiniteFuture());
    absl::Duration full = Milliseconds(100);
    for (int i = 0; i < 50; ++i) {
      const auto delay = calls.After(Failure(StatusCode::kUnavailable), true, kStart, chance);
      ASSERT_TRUE(delay.has_value());
      EXPECT_NEAR(absl::ToDoubleSeconds(*delay), absl::ToDoubleSeconds(full) * (0.5 + 0.5 * chance),
                  1e-6)
          << i;
      full = std::min(2 * full, Seconds(5));
    }
  }
}

TEST(CallRetriesTest, TheDaemonsDelayIsTheLeast) {
  for (const double chance : {0.0, 0.5, 0.999}) {
    const auto told = FirstDelay(
        Rpc::kExecute,
        Failure(StatusCode::kResourceExhausted, ErrorDetails("QUEUE_FULL", Milliseconds(2500))),
        true, chance);
    ASSERT_TRUE(told.has_value());
    EXPECT_GE(*told, Milliseconds(2500));
    EXPECT_LE(*told, Milliseconds(3000));
    // One that is shorter than ours, or nonsense, does not make us hurry.
    for (const absl::Duration silly : {absl::ZeroDuration(), -Seconds(1000), Milliseconds(1)}) {
      const auto own = FirstDelay(
          Rpc::kExecute, Failure(StatusCode::kResourceExhausted, ErrorDetails("QUEUE_FULL", silly)),
          true, chance);
      ASSERT_TRUE(own.has_value());
      EXPECT_GE(*own, Milliseconds(50));
      EXPECT_LE(*own, Milliseconds(100));
    }
  }
}

TEST(CallRetriesTest, NoAttemptBeginsBeyondTheDeadline) {
  const auto after = [](absl::Duration delay, absl::Duration left) {
    CallRetries calls(Rpc::kExecute, 4, kStart + left);
    return calls
        .After(Failure(StatusCode::kResourceExhausted, ErrorDetails("QUEUE_FULL", delay)), true,
               kStart, 0)
        .has_value();
  };
  EXPECT_TRUE(after(Seconds(2), Seconds(2.001)));
  EXPECT_FALSE(after(Seconds(2), Seconds(2)));
  EXPECT_FALSE(after(Seconds(2), -Seconds(1)));
  EXPECT_FALSE(after(absl::Hours(24 * 365 * 290), absl::Hours(100)));
}

TEST(CallRetriesTest, AttemptsAreBounded) {
  for (const int attempts : {-1, 0, 1, 2, 4}) {
    CallRetries calls(Rpc::kGetStatus, attempts, absl::InfiniteFuture());
    int made = 1;
    while (calls.After(Failure(StatusCode::kUnavailable), true, kStart, 0).has_value()) ++made;
    EXPECT_EQ(made, std::max(attempts, 1));
  }
}

TEST(RetryBudgetTest, AllowsABurstAndThenARate) {
  RetryBudget budget;
  const auto spent = [&budget](absl::Time now) {
    int count = 0;
    while (budget.Spend(now)) ++count;
    return count;
  };
  EXPECT_EQ(spent(kStart), RetryBudget::kAtOnce);
  EXPECT_EQ(spent(kStart), 0);
  EXPECT_EQ(spent(kStart - Seconds(100)), 0) << "a clock that was set back";
  EXPECT_EQ(spent(kStart + Seconds(2)), 2 * RetryBudget::kPerSecond);
  EXPECT_EQ(spent(kStart + absl::Hours(1)), RetryBudget::kAtOnce);
}

}  // namespace
}  // namespace tetrad
