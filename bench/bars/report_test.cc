// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/report.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "bench/bars/paired_ratio.h"

namespace tetrad::bars {
namespace {

const Bar kBar{.id = "x.y", .kind = Kind::kMax, .limit = 2, .unit = "us"};
const Provenance kProvenance{
    .device = "d", .driver = "580", .binary_sha256 = "00", .commit = "c", .date = "2026-01-02"};

TEST(ReportTest, ALineHasEveryFieldInOrder) {
  const auto line = LineOf(kBar, Measured{.value = 1.5, .low = 1, .high = 2}, kProvenance,
                           Clocks{.sm_mhz = 1980, .memory_mhz = 3201});
  EXPECT_EQ(line.dump(),
            R"({"id":"x.y","value":1.5,"spread":[1.0,2.0],"unit":"us","limit":2.0,"ok":true,)"
            R"("device":"d","driver":"580","clocks":{"sm_mhz":1980,"memory_mhz":3201},)"
            R"("binary_sha256":"00","commit":"c","date":"2026-01-02"})");
}

TEST(ReportTest, WhatWasNotMeasuredFailsWithItsReason) {
  const auto line = LineOf(kBar, absl::UnimplementedError("no peer"), kProvenance, std::nullopt);
  EXPECT_TRUE(line["value"].is_null());
  EXPECT_TRUE(line["spread"].is_null());
  EXPECT_EQ(line["ok"], false);
  EXPECT_EQ(line["clocks"], "unknown");
  EXPECT_EQ(line["reason"], "no peer");
}

TEST(ReportTest, ARemarkIsAReasonOnlyWhereTheLimitIsMissed) {
  Measured measured = Counted(3, "first wrong: T1");
  EXPECT_EQ(LineOf(kBar, measured, kProvenance, std::nullopt)["reason"], "first wrong: T1");
  measured.value = 1;
  EXPECT_FALSE(LineOf(kBar, measured, kProvenance, std::nullopt).contains("reason"));
}

TEST(ReportTest, Sha256OfAFile) {
  const std::string path = ::testing::TempDir() + "/tetrad_bars_report_test";
  std::ofstream(path) << "abc";
  const auto digest = Sha256(path);
  ASSERT_TRUE(digest.ok()) << digest.status();
  // The example of FIPS 180-2.
  EXPECT_EQ(*digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::filesystem::remove(path);
  EXPECT_FALSE(Sha256(path).ok());
}

TEST(FigureTest, MedianAndQuartilesAreValuesThatWereMeasured) {
  const Measured measured = MedianOf({5, 1, 4, 2, 3});
  EXPECT_EQ(measured.value, 3);
  EXPECT_EQ(measured.low, 2);
  EXPECT_EQ(measured.high, 4);
  EXPECT_EQ(MedianOf({7}).low, 7);
}

TEST(FigureTest, RatioOfMediansWithTheSpreadOfThePairs) {
  PairedRatio ratio;
  ratio.Add({2, 2, 100}, {1, 1, 1});
  ratio.Add({6, 6, 6}, {2, 2, 2});
  const Measured measured = ratio.Finish();
  EXPECT_EQ(measured.value, 6);  // of 2 2 6 6 6 100 over 1 1 1 2 2 2 by rank: 6 / 1
  EXPECT_EQ(measured.low, 2);
  EXPECT_EQ(measured.high, 3);
}

}  // namespace
}  // namespace tetrad::bars
