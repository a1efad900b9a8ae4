// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/verify_case.h"

#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "clients/cli/draw.h"
#include "clients/cli/fake_daemon.h"

namespace tetrad::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A case with gaps between rows, an empty group and odd n.
GroupedCase SmallCase() {
  GroupedCase c;
  c.name = "small";
  c.types.c_type = OutputType::kBf16;
  c.c_stride = 21;
  c.alpha_a = c.alpha_b = true;
  c.groups = {{5, 17, 64}, {0, 3, 32}, {3, 19, 96}};
  return c;
}

struct Attempt {
  explicit Attempt(Fault fault) : daemon(fault), client(*Client::Connect(daemon.endpoint())) {}

  absl::StatusOr<CaseResult> Verify(const GroupedCase& c, VerifyCaseOptions options = {}) {
    const Output output{out, err};
    const Session session{
        *client, output, {.deadline = absl::Seconds(20), .cancel = cancel.get_token()}};
    return VerifyCase(session, c, options);
  }

  FakeDaemon daemon;
  std::unique_ptr<Client> client;
  std::stop_source cancel;
  std::ostringstream out, err;
};

TEST(VerifyCaseTest, RightAnswersPassForEveryKindOfData) {
  Attempt attempt(Fault::kNone);
  for (const DataKind kind :
       {DataKind::kContest, DataKind::kExact, DataKind::kGeneral, DataKind::kNormal}) {
    const auto result = attempt.Verify(SmallCase(), {.kind = kind, .executions = 2});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->pass) << result->failure;
    EXPECT_EQ(result->check, IsExact(kind) ? Check::kBits : Check::kBound);
    EXPECT_EQ(result->kernel, "fake.reference");
    EXPECT_EQ(result->device_us, 8);
    EXPECT_EQ(result->floor_us, 2);
    EXPECT_EQ(result->share, 0.25);
    EXPECT_EQ(result->output_elements, 5 * 17 + 3 * 19);
    EXPECT_EQ(result->verdict.elements, result->output_elements);
  }
  EXPECT_EQ(attempt.daemon.executions(), 8);
  EXPECT_EQ(attempt.daemon.plans_held(), 0);
  EXPECT_THAT(attempt.daemon.weights(), IsEmpty());
}

TEST(VerifyCaseTest, DrawnCasesPassOnARightDaemon) {
  Attempt attempt(Fault::kNone);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    GroupedCase c = DrawCase(seed);
    for (CaseGroup& g : c.groups) g.m = std::min(g.m, 20);  // the fake is slow
    if (c.flops() > 4e6) continue;
    for (const DataKind kind : {DataKind::kExact, DataKind::kGeneral}) {
      const auto result = attempt.Verify(c, {.kind = kind, .seed = seed, .threads = 2});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->pass) << c.name << " " << Describe(c) << ": " << result->failure;
    }
  }
}

TEST(VerifyCaseTest, EveryFaultIsNoticedAndNothingIsLeftBehind) {
  const struct {
    Fault fault;
    const char* failure;
  } kCases[] = {
      {Fault::kWrongElement, "1 of 142 elements fail"},
      {Fault::kLastColumnDropped, "3 of 142 elements fail"},
      {Fault::kLastGroupDropped, "elements fail"},
      {Fault::kGapWritten, "belongs to no live element and is 0x1"},
      {Fault::kShortReply, "the reply has"},
      {Fault::kOtherBytesNextTime, "executing it again gave other bytes"},
      {Fault::kWrongSizes, "the contract says"},
      {Fault::kPrepareRefused, "refused: INVALID_ARGUMENT: group 3"},
      {Fault::kExecuteFails, "refused: INTERNAL"},
  };
  for (const auto& c : kCases) {
    Attempt attempt(c.fault);
    const auto result = attempt.Verify(SmallCase(), {.executions = 2});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->pass);
    EXPECT_THAT(result->failure, HasSubstr(c.failure));
    EXPECT_THAT(attempt.daemon.weights(), IsEmpty()) << c.failure;
    EXPECT_EQ(attempt.daemon.plans_held(), 0) << c.failure;
  }
}

TEST(VerifyCaseTest, GeneralDataNoticesADroppedColumn) {
  Attempt attempt(Fault::kLastColumnDropped);
  const auto result = attempt.Verify(SmallCase(), {.kind = DataKind::kGeneral});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->pass);
}

TEST(VerifyCaseTest, AnUnusableDaemonIsAnErrorNotAVerdict) {
  Attempt attempt(Fault::kDraining);
  EXPECT_EQ(attempt.Verify(SmallCase()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(attempt.daemon.weights(), IsEmpty());
}

TEST(VerifyCaseTest, AnInterruptDropsTheWeights) {
  Attempt attempt(Fault::kHangs);
  std::jthread interrupt([&attempt] {
    while (attempt.daemon.plans_held() == 0) std::this_thread::yield();
    attempt.cancel.request_stop();
  });
  EXPECT_EQ(attempt.Verify(SmallCase()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(attempt.daemon.weights(), IsEmpty());
}

}  // namespace
}  // namespace tetrad::cli
