// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/resumption.h"

#include <stop_token>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(ResumptionTest, WaitsDoubleWithinTheirHalvesAndBeginAnewWithProgress) {
  Resumption resumption({}, {}, absl::Minutes(30));
  for (int round = 0; round < 2; ++round) {
    absl::Duration most = absl::Milliseconds(50);
    for (int i = 0; i < 12; ++i) {
      const absl::Duration wait = resumption.NextWait();
      EXPECT_GE(wait, most / 2);
      EXPECT_LE(wait, most);
      most = std::min(most * 2, absl::Seconds(5));
    }
    resumption.Reached(100 + round);
  }
  resumption.NextWait();
  resumption.Reached(101);  // no more than before
  EXPECT_GE(resumption.NextWait(), absl::Milliseconds(50));
}

TEST(ResumptionTest, OnlyUnavailableIsTriedAgainAndOnlyIfAsked) {
  Resumption resumption({}, {}, absl::Minutes(30));
  for (int code = 0; code <= 16; ++code) {
    absl::Status status(static_cast<absl::StatusCode>(code), "");
    EXPECT_EQ(resumption.Again(status), code == 14) << code;
  }
  Resumption never({.resume = false}, {}, absl::Minutes(30));
  absl::Status status = absl::UnavailableError("");
  EXPECT_FALSE(never.Again(status));
}

TEST(ResumptionTest, EndsWithDeadlinePatienceAndCancel) {
  Resumption late({.deadline = absl::Milliseconds(1)}, {}, absl::Minutes(30));
  absl::Status status = absl::UnavailableError("");
  EXPECT_FALSE(late.Again(status));
  EXPECT_GT(late.Attempt().deadline, absl::ZeroDuration()) << "zero is the client's own";
  Resumption impatient({}, {.resume_patience = absl::ZeroDuration()}, absl::Minutes(30));
  EXPECT_FALSE(impatient.Again(status));
  std::stop_source stop;
  stop.request_stop();
  Resumption cancelled({.cancel = stop.get_token()}, {}, absl::Minutes(30));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_FALSE(cancelled.Again(status));
  EXPECT_TRUE(absl::IsCancelled(status));
}

TEST(ResumptionTest, KeysDiffer) {
  const Resumption a({}, {}, absl::Minutes(1)), b({}, {}, absl::Minutes(1));
  EXPECT_EQ(a.key().size(), 32u);
  EXPECT_NE(a.key(), b.key());
}

}  // namespace
}  // namespace tetrad
