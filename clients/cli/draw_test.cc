// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/draw.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tetrad::cli {
namespace {

constexpr uint64_t kSeeds = 2000;

// Every rule of "Legal" in docs/design.md section 5, stated anew.
void ExpectLegal(const GroupedCase& c) {
  SCOPED_TRACE(absl::StrCat(c.name, ": ", Describe(c)));
  ASSERT_FALSE(c.groups.empty());
  int64_t most_rows = 0;
  for (const CaseGroup& g : c.groups) {
    ASSERT_GE(g.m, 0);
    ASSERT_GE(g.n, 1);
    ASSERT_GE(g.k, 32);
    ASSERT_EQ(g.k % 32, 0);
    most_rows = std::max<int64_t>(most_rows, g.m);
    if (c.form == GroupForm::kStacked) {
      ASSERT_EQ(g.n, c.groups[0].n);
      ASSERT_EQ(g.k, c.groups[0].k);
    }
    if (c.c_stride != 0) {
      const bool row_major = c.types.c_layout == OutputLayout::kRowMajor;
      const int64_t rows = c.form == GroupForm::kStacked ? c.rows() : g.m;
      ASSERT_GE(c.c_stride, row_major ? g.n : rows);
    }
  }
  if (c.types.a_type != ActivationType::kNvfp4) {
    ASSERT_EQ(c.types.a_scale_layout, ScaleLayout::kLinear);
  }
  switch (c.m_source) {
    case MSource::kHost:
      ASSERT_EQ(c.capacity_rows, 0);
      break;
    case MSource::kOffsets:
      ASSERT_EQ(c.form, GroupForm::kStacked);
      ASSERT_GE(c.capacity_rows, c.live_rows());
      ASSERT_GE(c.capacity_rows, 1);
      break;
    case MSource::kCounts:
      ASSERT_EQ(c.form, GroupForm::kStacked);
      ASSERT_GE(c.capacity_rows, most_rows);
      ASSERT_GE(c.capacity_rows, 1);
      break;
  }
}

TEST(DrawTest, EverySeedIsLegalAndSmall) {
  double macs = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const GroupedCase c = DrawCase(seed);
    ExpectLegal(c);
    if (HasFatalFailure()) return;
    EXPECT_LE(c.flops() / 2, kMaxDrawnMacs);
    EXPECT_LE(LayOutOnWire(c).c_bytes, 96 << 20) << Describe(c);
    EXPECT_LE(LayOutOnWire(c).a_bytes, 96 << 20) << Describe(c);
    macs += c.flops() / 2;
  }
  EXPECT_GT(macs / kSeeds, kMaxDrawnMacs / 100) << "draws have become trivial";
}

TEST(DrawTest, TheSameSeedDrawsTheSameCase) {
  for (uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(DrawCase(seed), DrawCase(seed));
  EXPECT_NE(DrawCase(1).groups, DrawCase(2).groups);
  EXPECT_EQ(DrawCase(17).name, "random:17:1");
}

// Kinds that a kernel may treat apart; each must come up in a run of the size
// the release bar asks for.
TEST(DrawTest, FiveHundredSeedsReachEveryKind) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const GroupedCase c = DrawCase(seed);
    const ProblemTypes& t = c.types;
    ++seen[absl::StrCat("a", static_cast<int>(t.a_type), " c", static_cast<int>(t.c_type))];
    ++seen[absl::StrCat("scales ", static_cast<int>(t.a_type), static_cast<int>(t.a_scale_layout),
                        static_cast<int>(t.b_scale_layout))];
    ++seen[absl::StrCat("rows ", static_cast<int>(c.form), static_cast<int>(c.m_source),
                        static_cast<int>(t.c_layout), c.c_stride != 0)];
    ++seen[absl::StrCat("factors ", c.row_scale, c.alpha_a, c.alpha_b)];
    seen["single group"] += c.groups.size() == 1;
    seen["hundreds of groups"] += c.groups.size() > 100;
    seen["all empty"] += c.live_rows() == 0;
    bool empty = false, odd_n = false, other_n = false, least_k = false, wide_k = false;
    for (const CaseGroup& g : c.groups) {
      empty |= g.m == 0 && c.live_rows() > 0;
      odd_n |= g.n % 2 == 1 && g.m > 0;
      other_n |= g.n != c.groups[0].n;
      least_k |= g.k == 32;
      wide_k |= g.k % 64 == 32 && g.k > 32;
    }
    seen["empty beside live"] += empty;
    seen["odd n"] += odd_n;
    seen["n differs"] += other_n;
    seen["k=32"] += least_k;
    seen["half a scale tile along k"] += wide_k;
    seen["rows cross a scale tile"] +=
        std::any_of(c.groups.begin(), c.groups.end(), [](const auto& g) { return g.m > 128; });
  }
  // 9 type pairs; nvfp4 with 4 pairs of scale layouts, 16-bit with 2 each; 4
  // row kinds x 2 layouts x stride or not; 8 sets of factors; 10 named ones.
  EXPECT_EQ(seen.size(), 9u + 8u + 16u + 8u + 9u);
  for (const auto& [kind, times] : seen) EXPECT_GE(times, 2) << kind;
}

}  // namespace
}  // namespace tetrad::cli
