// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tetrad {
namespace {

TEST(LogTest, LogfmtQuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "t", "info", "ready",
                          {{"grpc", "unix:/run/a.sock"}, {"note", "two words"}, {"empty", ""}}),
            "time=t level=info event=ready grpc=unix:/run/a.sock note=\"two words\" empty=\"\"");
}

TEST(LogTest, NoTextLeavesItsLineOrField) {
  const std::string hostile("a\nb\0c\x1b[31m\"x=1\\\xff\xf0\x9f\x98\x80", 20);
  for (const LogFormat format : {LogFormat::kLogfmt, LogFormat::kJson}) {
    const std::string line = FormatLogLine(format, "t", "info", "e", {{"text", hostile}});
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
    EXPECT_NE(line.find("[31m\\\"x=1\\\\\\u00ff"), std::string::npos) << line;
  }
}

TEST(LogTest, JsonIsJson) {
  const std::string line =
      FormatLogLine(LogFormat::kJson, "t", "info", "e", {{"text", "a\n\"b\\"}, {"n", "1"}});
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["text"], "a\n\"b\\");
  EXPECT_EQ(parsed["event"], "e");
}

}  // namespace
}  // namespace tetrad
