// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/percentiles.h"

#include <numeric>

#include <gtest/gtest.h>

namespace tetrad::cli {
namespace {

std::vector<double> UpTo(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(PercentilesTest, NearestRank) {
  const struct {
    int count;
    double percent, expected;
  } kCases[] = {{1, 50, 1},     {1, 99, 1},      {2, 50, 1},        {2, 51, 2},
                {3, 50, 2},     {4, 50, 2},      {10, 90, 9},       {10, 99, 10},
                {11, 90, 10},   {100, 99, 99},   {100, 50, 50},     {100, 90, 90},
                {101, 99, 100}, {1000, 99, 990}, {1000, 100, 1000}, {5, 1e-9, 1}};
  for (const auto& test : kCases) {
    EXPECT_EQ(Percentile(UpTo(test.count), test.percent), test.expected)
        << test.count << " values, " << test.percent << " %";
  }
}

TEST(PercentilesTest, OrderOfMeasurementDoesNotMatter) {
  std::vector<double> values = UpTo(200);
  std::swap(values[0], values[199]);
  std::swap(values[17], values[120]);
  const Percentiles percentiles = PercentilesOf(values);
  EXPECT_EQ(percentiles.p50, 100);
  EXPECT_EQ(percentiles.p90, 180);
  EXPECT_EQ(percentiles.p99, 198);
  EXPECT_EQ(percentiles.max, 200);
}

}  // namespace
}  // namespace tetrad::cli
