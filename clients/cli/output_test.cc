// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/output.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "tetrad/v1/status.pb.h"
#include "tetrad/v1/types.pb.h"

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

}  // namespace
}  // namespace tetrad::cli
