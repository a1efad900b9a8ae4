// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tetrad {
namespace {

TEST(LogTest, LogfmtQuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "t", "info", "ready",
                          {{"grpc", "unix:/run/a.sock"}, {"note", "two words"}, {"empty", ""}}),
            "time=t level=info event=ready grpc=unix:/run/a.sock note=\"two words\" empty=\"\"");
}

TEST(LogTest, WhatIsNotThereIsNoField) {
  const std::optional<std::string> here = "x", empty = "", absent;
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "t", "info", "e",
                          {{"absent", absent}, {"here", here}, {"empty", empty}}),
            "time=t level=info event=e here=x empty=\"\"");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "t", "info", "e", {{"absent", absent}, {"n", 1}}),
            R"({"time":"t","level":"info","event":"e","n":1})");
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
  EXPECT_EQ(parsed["n"], "1");
}

TEST(LogTest, NumbersAndTruthValuesAreNoTexts) {
  const std::initializer_list<LogField> fields = {
      {"least", INT64_MIN},   {"most", INT64_MAX},
      {"small", uint8_t{7}},  {"share", 0.1},
      {"tiny", 5e-324},       {"huge", 1e300},
      {"truth", true},        {"text", std::string_view("true")},
      {"none", std::nan("")}, {"over", HUGE_VAL}};
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "t", "info", "e", fields),
            "time=t level=info event=e least=-9223372036854775808 most=9223372036854775807 small=7 "
            "share=0.1 tiny=5e-324 huge=1e+300 truth=true text=true none=nan over=inf");
  const auto parsed =
      nlohmann::json::parse(FormatLogLine(LogFormat::kJson, "t", "info", "e", fields));
  EXPECT_EQ(parsed["least"].get<int64_t>(), INT64_MIN);
  EXPECT_EQ(parsed["most"].get<int64_t>(), INT64_MAX);
  EXPECT_TRUE(parsed["small"].is_number_integer());
  EXPECT_EQ(parsed["share"].get<double>(), 0.1);
  EXPECT_EQ(parsed["tiny"].get<double>(), 5e-324);
  EXPECT_EQ(parsed["huge"].get<double>(), 1e300);
  EXPECT_EQ(parsed["truth"], true);
  EXPECT_EQ(parsed["text"], "true");
  EXPECT_EQ(parsed["none"], "nan");
  EXPECT_EQ(parsed["over"], "inf");
}

TEST(LogTest, TakesWhatItsLevelLetsThrough) {
  const Log log(LogFormat::kLogfmt, LogLevel::kWarning);
  EXPECT_FALSE(log.Takes(LogLevel::kDebug));
  EXPECT_FALSE(log.Takes(LogLevel::kInfo));
  EXPECT_TRUE(log.Takes(LogLevel::kWarning));
  EXPECT_TRUE(log.Takes(LogLevel::kError));
}

}  // namespace
}  // namespace tetrad
