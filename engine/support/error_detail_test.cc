// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/support/error_detail.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

TEST(ErrorDetailTest, ComesBackAsItWasPut) {
  const std::string odd("3:\0a=\n", 6);
  const ErrorDetail detail{.reason = Reason::kQuota,
                           .violations = {{"m", "-1", "at least 0", 7}, {odd, "", odd, {}}},
                           .retry_delay = absl::Milliseconds(250),
                           .omitted = 12};
  const absl::Status status = WithDetail(absl::ResourceExhaustedError("full"), detail);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "full");
  const std::optional<ErrorDetail> back = DetailOf(status);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->reason, Reason::kQuota);
  EXPECT_EQ(back->retry_delay, absl::Milliseconds(250));
  EXPECT_EQ(back->omitted, 12);
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
  EXPECT_EQ(FieldError({"a.b", "0", "1"}).message(), "a.b=0: wanted 1");
  EXPECT_EQ(FieldError({"a.groups[3].n", "0", "1", 3}).message(), "group 3: n=0: wanted 1");
  EXPECT_EQ(FieldError({"exact.m[3]", "-1", "", 3}).message(), "group 3: m=-1");
  EXPECT_EQ(FieldError({"f", "0"}, Reason::kQuota, "as I say").message(), "as I say");
}

TEST(ErrorDetailTest, ManyGroupsAreToldInPart) {
  GroupErrors errors(Reason::kFieldMalformed);
  EXPECT_TRUE(errors.status().ok());
  int made = 0;
  for (int64_t g = 0; g < 1000; ++g) {
    errors.Add([&]() -> FieldViolation {
      ++made;
      return {absl::StrCat("groups[", g, "].n"), "0", "at least 1", g};
    });
    const std::optional<ErrorDetail> detail = DetailOf(errors.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->violations.size(), std::min<size_t>(g + 1, GroupErrors::kMost));
    EXPECT_EQ(detail->omitted, std::max<int64_t>(g + 1 - int64_t{GroupErrors::kMost}, 0));
  }
  EXPECT_EQ(made, static_cast<int>(GroupErrors::kMost));
  EXPECT_EQ(errors.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(errors.status().message(), "group 0: n=0: wanted at least 1 (and 999 more)");
  EXPECT_EQ(DetailOf(errors.status())->reason, Reason::kFieldMalformed);
  EXPECT_EQ(DetailOf(errors.status())->violations.back().group, 15);
}

TEST(ErrorDetailTest, PrefixesKeepWhatIsThere) {
  const absl::Status inner = FieldError({"n", "0", "at least 1", 3}, Reason::kQuota);
  const absl::Status outer = InMessage("header", WithPrefix("upload: ", inner));
  EXPECT_EQ(outer.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(outer.message(), "upload: group 3: n=0: wanted at least 1");
  ASSERT_TRUE(DetailOf(outer).has_value());
  EXPECT_EQ(DetailOf(outer)->reason, Reason::kQuota);
  EXPECT_EQ(DetailOf(outer)->violations[0].field, "header.n");
  EXPECT_EQ(DetailOf(outer)->violations[0].group, 3);
  EXPECT_EQ(InMessage("header", absl::InternalError("x")), absl::InternalError("x"));
  EXPECT_EQ(WithPrefix("a: ", absl::InternalError("x")), absl::InternalError("a: x"));
}

}  // namespace
}  // namespace tetrad
