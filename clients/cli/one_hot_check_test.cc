// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/one_hot_check.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/cli/case_data.h"
#include "clients/cli/fake_daemon.h"

namespace tetrad::cli {
namespace {

using ::testing::HasSubstr;

// What the check says of a daemon with `fault`, for groups of `m` rows.
std::string Checked(Fault fault, std::vector<int32_t> m, ProblemTypes types = {}) {
  FakeDaemon daemon(fault);
  GroupedCase c;
  c.types = types;
  for (const int32_t rows : m) c.groups.push_back({rows, 24, 64});
  const CaseData data(c, DataKind::kExact, 1, 1);
  const auto client = Client::Connect(daemon.endpoint());
  EXPECT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Upload(ToUploadHeader(c, "w"), data.codes(), data.scales()).ok());
  std::ostringstream out, err;
  const Output output{out, err};
  const Session session{**client, output, {}};
  const v1::Signature signature = ToSignature(c, "w");
  const auto plan = (*client)->Prepare(signature);
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto failure = CheckOneHot(session, signature, *plan, c, 1);
  EXPECT_TRUE(failure.ok()) << failure.status();
  return failure.value_or("");
}

TEST(OneHotCheckTest, ARightDaemonPasses) {
  EXPECT_EQ(Checked(Fault::kNone, {3, 0, 1}), "");
  EXPECT_EQ(Checked(Fault::kNone, {64, 65, 200}), "");
  ProblemTypes types;
  types.a_type = ActivationType::kBf16;
  types.c_type = OutputType::kBf16;
  types.c_layout = OutputLayout::kColumnMajor;
  EXPECT_EQ(Checked(Fault::kNone, {5, 70}, types), "");
}

TEST(OneHotCheckTest, WhatIsMisplacedIsNamed) {
  // The weights are read with the same fault, but as FP32: half the elements lie
  // elsewhere, so the two disagree.
  EXPECT_THAT(Checked(Fault::kWrongElement, {4, 4}), HasSubstr("comes out as 0x"));
  EXPECT_THAT(Checked(Fault::kWrongSizes, {4, 4}), HasSubstr("the contract says"));
  EXPECT_THAT(Checked(Fault::kOtherBytesNextTime, {4, 4}), HasSubstr("group 1 row 0"));
}

}  // namespace
}  // namespace tetrad::cli
