// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/output.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tetrad/v1/status.pb.h"
#include "tetrad/v1/types.pb.h"

#include "clients/cpp/status_mapping.h"

namespace tetrad::cli {
namespace {

TEST(OutputTest, MessagesKeepProtoNamesAndZeroValues) {
  std::ostringstream out, err;
  v1::GetStatusResponse status;
  status.set_version("1");
  status.set_weights_bytes(int64_t{1} << 60);
  status.add_devices()->set_name("cpu");
  Output{out, err}.PrintMessage(status);
  EXPECT_EQ(err.str(), "");
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["version"], "1");
  EXPECT_EQ(json["weights_bytes"], "1152921504606846976");  // as protobuf writes 64-bit integers
  EXPECT_EQ(json["in_flight"], "0");
  EXPECT_EQ(json["devices"][0]["name"], "cpu");
}

TEST(OutputTest, ErrorsGoToBothStreamsWithJson) {
  std::ostringstream out, err;
  Output output{out, err};
  output.PrintError(absl::NotFoundError("weights w"));
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(err.str(), "tetradctl: NOT_FOUND: weights w\n");
  output.json = true;
  output.PrintError(absl::NotFoundError("bad \xFF byte"));
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json["error"]["message"], "bad \xEF\xBF\xBD byte");
}

TEST(OutputTest, ErrorsOfTheDaemonShowReasonViolationsAndDelay) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_domain("tetrad");
  info.set_reason("FIELD_OUT_OF_RANGE");
  details.add_details()->PackFrom(info);
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("groups[3].n");
  bad.mutable_field_violations(0)->set_description("group 3: 0, wanted at least 1");
  details.add_details()->PackFrom(bad);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(250'000'000);
  details.add_details()->PackFrom(retry);
  std::ostringstream out, err;
  Output{out, err, /*json=*/true}.PrintError(
      FromGrpcStatus({grpc::StatusCode::INVALID_ARGUMENT, "no good", details.SerializeAsString()}));
  EXPECT_EQ(err.str(),
            "tetradctl: INVALID_ARGUMENT: no good [FIELD_OUT_OF_RANGE]\n"
            "  groups[3].n: group 3: 0, wanted at least 1\n");
  const auto error = nlohmann::json::parse(out.str())["error"];
  EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(error["reason"], "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(error["violations"].size(), 1u);
  EXPECT_EQ(error["violations"][0]["field"], "groups[3].n");
  EXPECT_EQ(error["violations"][0]["description"], "group 3: 0, wanted at least 1");
  EXPECT_EQ(error["retry_seconds"], 0.25);
}

}  // namespace
}  // namespace tetrad::cli
