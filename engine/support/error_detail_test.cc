// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/support/error_detail.h"

#include <set>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(ErrorDetailTest, ComesBackAsItWasPut) {
  const std::string odd("3:\0a=\n", 6);
  const ErrorDetail detail{.reason = Reason::kQuota,
                           .violations = {{"m", "-1", "at least 0", 7}, {odd, "", odd, {}}},
                           .retry_delay = absl::Milliseconds(250)};
  const absl::Status status = WithDetail(absl::ResourceExhaustedError("full"), detail);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "full");
  const std::optional<ErrorDetail> back = DetailOf(status);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->reason, Reason::kQuota);
  EXPECT_EQ(back->retry_delay, absl::Milliseconds(250));
  ASSERT_EQ(back->violations.size(), 2u);
  EXPECT_EQ(back->violations[0].field, "m");
  EXPECT_EQ(back->violations[0].value, "-1");
  EXPECT_EQ(back->violations[0].limit, "at least 0");
  EXPECT_EQ(back->violations[0].group, 7);
  EXPECT_EQ(back->violations[1].field, odd);
  EXPECT_EQ(back->violations[1].limit, odd);
  EXPECT_FALSE(back->violations[1].group.has_value());
}

TEST(ErrorDetailTest, OtherStatusesHaveNone) {
  EXPECT_FALSE(DetailOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(DetailOf(absl::InternalError("x")).has_value());
}

TEST(ErrorDetailTest, EveryReasonHasAnErrorCodeAndANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_NE(CodeOf(reason), absl::StatusCode::kOk);
    EXPECT_TRUE(names.insert(ReasonName(reason)).second) << ReasonName(reason);
    EXPECT_EQ(ReasonError(reason, "m").code(), CodeOf(reason));
    EXPECT_EQ(DetailOf(ReasonError(reason, "m"))->reason, reason);
  }
}

TEST(ErrorDetailTest, MessageNamesGroupFieldValueAndLimit) {
  EXPECT_EQ(FieldError({"n", "0", "at least 1", 3}).message(), "group 3: n=0: wanted at least 1");
  EXPECT_EQ(FieldError({"name"}, Reason::kFieldMissing).message(), "name");
}

}  // namespace
}  // namespace tetrad
