// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

TEST(StatusTest, CodesAreOneToOne) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    const grpc::Status converted = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(converted.error_code()), code);
    EXPECT_EQ(converted.error_message(), "text");
    EXPECT_EQ(CodeName(converted.error_code()), absl::StatusCodeToString(status.code()));
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_EQ(CodeName(grpc::StatusCode::OK), "OK");
}

TEST(StatusTest, TextIsPrintableAscii) {
  EXPECT_EQ(ErrorText("group 3: k=100"), "group 3: k=100");
  EXPECT_EQ(ErrorText(std::string_view("a\nb\0c", 5)), "a\\x0Ab\\x00c");
  EXPECT_EQ(ErrorText("\xF0\x9F\x98\x80\xFF"), "\\xF0\\x9F\\x98\\x80\\xFF");
}

TEST(StatusTest, TextIsCappedAndSaysSo) {
  EXPECT_EQ(ErrorText("abcdef", 6), "abcdef");
  EXPECT_EQ(ErrorText("abcdefg", 6), "abcdef... (7 bytes in all)");
  EXPECT_EQ(ErrorText("abc\n", 6), "abc... (4 bytes in all)");
  const grpc::Status status = ToGrpc(absl::InternalError(std::string(100'000, '%')));
  EXPECT_LT(status.error_message().size() * 3, 2000u);
}

google::rpc::Status Decoded(const grpc::Status& status) {
  google::rpc::Status decoded;
  EXPECT_TRUE(decoded.ParseFromString(status.error_details()));
  EXPECT_EQ(decoded.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(decoded.message(), status.error_message());
  return decoded;
}

// The detail of that type, if there is one; never two.
template <typename Message>
std::optional<Message> Find(const google::rpc::Status& status) {
  std::optional<Message> found;
  for (const google::protobuf::Any& any : status.details()) {
    Message message;
    if (!any.Is<Message>()) continue;
    EXPECT_FALSE(found.has_value());
    EXPECT_TRUE(any.UnpackTo(&message));
    found = message;
  }
  return found;
}

TEST(StatusTest, DetailsHoldReasonAndViolations) {
  ErrorDetail detail{.reason = Reason::kFieldConflict, .omitted = 7};
  detail.violations = {{"header.groups[3].n", "0", "at least 1", 3}, {"name", "", "a name"}, {"x"}};
  const absl::Status status = WithDetail(absl::InvalidArgumentError("no good"), detail);
  EXPECT_EQ(ReasonText(status), "FIELD_CONFLICT");
  const google::rpc::Status told = Decoded(ToGrpc(status));
  EXPECT_EQ(told.details_size(), 2);
  const auto info = Find<google::rpc::ErrorInfo>(told);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "FIELD_CONFLICT");
  EXPECT_EQ(info->domain(), "tetrad");
  EXPECT_EQ(info->metadata_size(), 4);
  EXPECT_EQ(info->metadata().at("field"), "header.groups[3].n");
  EXPECT_EQ(info->metadata().at("value"), "0");
  EXPECT_EQ(info->metadata().at("limit"), "at least 1");
  EXPECT_EQ(info->metadata().at("group"), "3");
  const auto bad = Find<google::rpc::BadRequest>(told);
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 4);
  EXPECT_EQ(bad->field_violations(0).field(), "header.groups[3].n");
  EXPECT_EQ(bad->field_violations(0).description(), "group 3: 0, wanted at least 1");
  EXPECT_EQ(bad->field_violations(1).description(), "wanted a name");
  EXPECT_EQ(bad->field_violations(2).field(), "x");
  EXPECT_EQ(bad->field_violations(2).description(), "no good");
  EXPECT_EQ(bad->field_violations(3).field(), "header.groups");
  EXPECT_EQ(bad->field_violations(3).description(), "7 more");
}

TEST(StatusTest, OnlyInvalidArgumentsAreBadRequests) {
  const absl::Status status = FieldError({"weights", "w"}, Reason::kWeightsNotFound, "no w");
  const google::rpc::Status told = Decoded(ToGrpc(status));
  EXPECT_FALSE(Find<google::rpc::BadRequest>(told).has_value());
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(told)->metadata().at("field"), "weights");
  EXPECT_FALSE(Find<google::rpc::BadRequest>(Decoded(ToGrpc(absl::InvalidArgumentError("x")))));
}

TEST(StatusTest, DelaysAreThoseOfTheDetailOrOfTheCode) {
  const auto delay = [](const absl::Status& status) -> absl::Duration {
    const auto retry = Find<google::rpc::RetryInfo>(Decoded(ToGrpc(status)));
    if (!retry.has_value()) return absl::ZeroDuration();
    return absl::Seconds(retry->retry_delay().seconds()) +
           absl::Nanoseconds(retry->retry_delay().nanos());
  };
  for (size_t i = 0; i < kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    SCOPED_TRACE(std::string(ReasonName(reason)));
    const bool restarts = reason == Reason::kDraining || reason == Reason::kDeviceLost;
    EXPECT_EQ(delay(ReasonError(reason, "m")),
              CodeOf(reason) == absl::StatusCode::kResourceExhausted ? absl::Milliseconds(100)
              : restarts                                             ? absl::Seconds(1)
                                                                     : absl::ZeroDuration());
  }
  EXPECT_EQ(delay(absl::ResourceExhaustedError("m")), absl::Milliseconds(100));
  EXPECT_EQ(delay(absl::UnavailableError("m")), absl::ZeroDuration());
  const auto said = [&](absl::Duration in) {
    return delay(WithDetail(absl::ResourceExhaustedError("m"),
                            {.reason = Reason::kQueueFull, .retry_delay = in}));
  };
  EXPECT_EQ(said(absl::Nanoseconds(2'000'000'007)), absl::Nanoseconds(2'000'000'007));
  EXPECT_EQ(said(absl::InfiniteDuration()), absl::Hours(1));
  EXPECT_EQ(said(absl::Seconds(-1)), absl::Milliseconds(100));
}

TEST(StatusTest, EveryErrorHasAReason) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    const auto info = Find<google::rpc::ErrorInfo>(Decoded(ToGrpc(status)));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason(), ReasonText(status));
    EXPECT_EQ(info->domain(), "tetrad");
  }
  EXPECT_EQ(ReasonText(absl::NotFoundError("x")), "NOT_FOUND");
  EXPECT_EQ(ReasonText(absl::UnknownError("x")), "INTERNAL");
  EXPECT_EQ(ReasonText(absl::DeadlineExceededError("x")), "DEADLINE");
  EXPECT_EQ(ToRpcStatus(absl::OkStatus()).ByteSizeLong(), 0u);
}

// Base64 as gRPC sends `-bin` headers, percent-encoding as it sends messages.
size_t SentBytes(const grpc::Status& status) {
  size_t bytes = (status.error_details().size() * 4 + 2) / 3;
  for (const char c : status.error_message()) bytes += c < ' ' || c > '~' || c == '%' ? 3 : 1;
  return bytes;
}

TEST(StatusTest, WhateverCameTheTrailerIsBoundedAndText) {
  std::mt19937 random(7);
  const auto text = [&random]() -> std::string {
    static constexpr size_t kSizes[] = {0, 1, 30, 500, 5000, 128 << 10};
    std::string text(kSizes[random() % std::size(kSizes)], '%');
    if (random() % 3 == 0) return text;
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    ErrorDetail detail{.reason = static_cast<Reason>(random() % kReasons)};
    const size_t count = std::array{0, 1, 17, 5000}[random() % 4];
    const std::string field = text(), value = text(), limit = text();
    for (size_t i = 0; i < count; ++i) {
      // Not all of 128 KiB: that is gigabytes.
      const size_t most = i < 3 ? std::string::npos : 100;
      detail.violations.push_back({field.substr(0, most), value.substr(0, most),
                                   limit.substr(0, most), static_cast<int64_t>(random())});
    }
    detail.omitted = round % 2 == 0 ? 0 : INT64_MAX / 2;
    const auto code = round % 2 == 0 ? absl::StatusCode::kInvalidArgument : CodeOf(detail.reason);
    const grpc::Status status = ToGrpc(WithDetail(absl::Status(code, text()), detail));
    ASSERT_LT(SentBytes(status), kTrailerLimit);
    const google::rpc::Status told = Decoded(status);
    ASSERT_TRUE(Find<google::rpc::ErrorInfo>(told).has_value());
    const auto bad = Find<google::rpc::BadRequest>(told);
    ASSERT_EQ(bad.has_value(), code == absl::StatusCode::kInvalidArgument && count > 0);
    if (!bad.has_value()) continue;
    const auto listed = static_cast<size_t>(bad->field_violations_size());
    ASSERT_GE(listed, 1u);
    ASSERT_LE(listed, count + 1);
    if (listed < count || detail.omitted > 0) {
      const auto told_in_full = static_cast<int64_t>(listed) - 1;
      EXPECT_EQ(bad->field_violations().rbegin()->description(),
                absl::StrCat(static_cast<int64_t>(count) - told_in_full + detail.omitted, " more"));
    }
    for (const auto& violation : bad->field_violations()) {
      for (const std::string& part : {violation.field(), violation.description()}) {
        EXPECT_TRUE(std::ranges::all_of(part, [](char c) { return c >= ' ' && c <= '~'; }));
      }
    }
  }
}

TEST(StatusTest, RoomIsUsed) {
  ErrorDetail detail{.reason = Reason::kFieldOutOfRange, .omitted = 4984};
  for (int64_t g = 0; g < 16; ++g) {
    detail.violations.push_back(
        {absl::StrCat("signature.exact.m[", g, "]"), "-2147483648", "at least 0", g});
  }
  const google::rpc::Status told =
      Decoded(ToGrpc(WithDetail(absl::InvalidArgumentError("group 0: m=-1"), detail)));
  EXPECT_EQ(Find<google::rpc::BadRequest>(told)->field_violations_size(), 17);
}

TEST(StatusTest, EveryReasonIsDocumentedWithItsCode) {
  std::ifstream file("docs/errors.md");  // tests run in the root of the tree
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  size_t rows = 0;
  for (size_t at = 0; (at = page.find("\n| `", at)) != page.npos; ++at) {
    rows += page.find("` |", at) < page.find('\n', at + 1) && page[at + 4] >= 'A' &&
            page[at + 4] <= 'Z' && page[at + 5] >= 'A' && page[at + 5] <= 'Z';
  }
  EXPECT_EQ(rows, kReasons) << "rows of reasons that there are not";
  for (size_t i = 0; i < kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    const std::string row = absl::StrCat("\n| `", std::string(ReasonName(reason)), "` | ",
                                         absl::StatusCodeToString(CodeOf(reason)), " | ");
    EXPECT_NE(page.find(row), page.npos) << row;
  }
}

}  // namespace
}  // namespace tetrad
