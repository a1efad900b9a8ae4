// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/progress.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

namespace tetrad::cli {
namespace {

long CountReturns(const std::string& text) { return std::count(text.begin(), text.end(), '\r'); }

TEST(ProgressTest, InvisibleBarWritesNothing) {
  std::ostringstream out;
  {
    ProgressBar bar(out, false, "loading", ProgressBar::Unit::kBytes);
    bar.Update(1, 2);
    bar.Clear();
  }
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressTest, RedrawsAtMostTenTimesASecondAndErasesItself) {
  std::ostringstream out;
  const absl::Time start = absl::UnixEpoch();
  {
    ProgressBar bar(out, true, "loading", ProgressBar::Unit::kCount);
    for (int i = 0; i < 100; ++i) bar.Update(i, 100, start + absl::Milliseconds(i));
    EXPECT_EQ(CountReturns(out.str()), 1);
    bar.Update(100, 100, start + absl::Milliseconds(100));
    EXPECT_EQ(CountReturns(out.str()), 2);
  }
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K"));
}

TEST(ProgressTest, ShowsShareAndAmounts) {
  const std::string half = RenderProgress("up", ProgressBar::Unit::kBytes, 512, 1024);
  EXPECT_EQ(half, "up [" + std::string(15, '#') + std::string(15, '.') + "] 50% 512 B of 1.0 KiB");
  EXPECT_EQ(RenderProgress("up", ProgressBar::Unit::kCount, 7, 0), "up 7");
  EXPECT_EQ(RenderProgress("up", ProgressBar::Unit::kCount, 9, 3),
            "up [" + std::string(30, '#') + "] 100% 9 of 3");
}

}  // namespace
}  // namespace tetrad::cli
