// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/error_info.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include "clients/cpp/status_mapping.h"

namespace tetrad {
namespace {

google::rpc::Status Details(const char* domain) {
  google::rpc::Status details;
  details.set_code(static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  details.set_message("full");
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  info.set_domain(domain);
  info.mutable_metadata()->insert({"limit", "7"});
  details.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  details.add_details()->PackFrom(retry);
  google::rpc::BadRequest bad;
  for (const char* field : {"a", "b[1]"}) {
    bad.add_field_violations()->set_field(field);
    bad.mutable_field_violations()->rbegin()->set_description("wrong");
  }
  details.add_details()->PackFrom(bad);
  return details;
}

absl::Status Received(const std::string& details) {
  return FromGrpcStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details});
}

void ExpectAll(const std::optional<ErrorInfo>& info) {
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, "QUEUE_FULL");
  EXPECT_EQ(info->metadata.at("limit"), "7");
  EXPECT_EQ(info->retry_delay, absl::Seconds(2.5));
  ASSERT_EQ(info->violations.size(), 2u);
  EXPECT_EQ(info->violations[1].field, "b[1]");
  EXPECT_EQ(info->violations[1].description, "wrong");
}

TEST(ErrorInfoTest, ReadsWhatTheDaemonSends) {
  ExpectAll(ErrorInfoOf(Received(Details("tetrad").SerializeAsString())));
}

TEST(ErrorInfoTest, OthersHaveNone) {
  EXPECT_FALSE(ErrorInfoOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(ErrorInfoOf(absl::InternalError("of the client")).has_value());
  EXPECT_FALSE(ErrorInfoOf(Received("\xFF\xFF no message")).has_value());
  EXPECT_FALSE(ErrorInfoOf(Received(Details("example.com").SerializeAsString())).has_value());
  google::rpc::Status broken = Details("tetrad");
  broken.mutable_details(0)->set_value("\xFF\xFF");
  EXPECT_FALSE(ErrorInfoOf(Received(broken.SerializeAsString())).has_value());
}

TEST(ErrorInfoTest, AnswersOfStreamsHaveTheSame) {
  v1::ExecuteStreamResponse answer;
  EXPECT_TRUE(StatusOf(answer).ok());
  answer.set_code(static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  answer.set_message("full");
  *answer.mutable_details() = Details("tetrad").details();
  const absl::Status status = StatusOf(answer);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "full");
  ExpectAll(ErrorInfoOf(status));
}

}  // namespace
}  // namespace tetrad
