// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/table.h"

#include <limits>

#include <gtest/gtest.h>

namespace tetrad::cli {
namespace {

TEST(TableTest, AlignsColumnsAndTrimsLines) {
  Table table({{"name"}, {"us", Table::Align::kRight}, {"note"}});
  table.AddRow({"S1", "75.2", "cold"});
  table.AddRow({"longer", "5", ""});
  EXPECT_EQ(table.Render(),
            "name      us  note\n"
            "S1      75.2  cold\n"
            "longer     5\n");
  EXPECT_EQ(table.rows(), 2u);
}

TEST(TableTest, MissingCellsAreEmptyAndSurplusOnesDropped) {
  Table table({{"a"}, {"b"}});
  table.AddRow({"1"});
  table.AddRow({"1", "2", "3"});
  EXPECT_EQ(table.Render(), "a  b\n1\n1  2\n");
}

TEST(TableTest, CountsCodePointsAndShowsControlCharacters) {
  Table table({{"x"}, {"y"}});
  table.AddRow({"\xC2\xB5s", "1"});
  table.AddRow({"a\nb", "2"});
  EXPECT_EQ(table.Render(), "x       y\n\xC2\xB5s      1\na\\x0ab  2\n");
}

TEST(TableTest, Formats) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8.0 EiB");
  EXPECT_EQ(FormatNumber(0), "0");
  EXPECT_EQ(FormatNumber(0.0001044), "0.000104");
  EXPECT_EQ(FormatNumber(-0.25), "-0.250");
  EXPECT_EQ(FormatNumber(1.23456), "1.235");
  EXPECT_EQ(FormatNumber(75.21), "75.21");
  EXPECT_EQ(FormatNumber(123.456), "123.5");
  EXPECT_EQ(FormatNumber(98765.4), "98765");
  EXPECT_EQ(FormatNumber(4e12), "4.000e+12");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatDuration(0.25), "0.2s");
  EXPECT_EQ(FormatDuration(61), "1m 1s");
  EXPECT_EQ(FormatDuration(93784), "1d 2h 3m");
  EXPECT_EQ(FormatDuration(3660), "1h 1m");
}

}  // namespace
}  // namespace tetrad::cli
