// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/definitions.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bars/figure.h"

namespace tetrad::bars {
namespace {

using ::testing::HasSubstr;

TEST(DefinitionsTest, OneBarALine) {
  const auto bars =
      ParseBars("# a comment\n\na.b\tmin\t14\tshapes\twhat\nc\tgoal-max\t1.5\ts\tw\n");
  ASSERT_TRUE(bars.ok()) << bars.status();
  ASSERT_EQ(bars->size(), 2u);
  EXPECT_EQ((*bars)[0].id, "a.b");
  EXPECT_EQ((*bars)[0].kind, Kind::kMin);
  EXPECT_EQ((*bars)[0].unit, "shapes");
  EXPECT_EQ((*bars)[1].kind, Kind::kGoalMax);
  EXPECT_EQ((*bars)[1].limit, 1.5);
}

TEST(DefinitionsTest, WhatIsNoBarIsNamed) {
  for (const auto& [text, expected] :
       {std::pair("a\tmin\t1\tu\n", "line 1: 4 fields"),
        std::pair("\na\tmost\t1\tu\td\n", "line 2: unknown kind 'most'"),
        std::pair("a\tmin\tx\tu\td\n", "limit 'x' is no number"),
        std::pair("a\tmin\t1\tu\td\na\tmax\t1\tu\td\n", "line 2: a stands here twice")}) {
    EXPECT_THAT(ParseBars(text).status().message(), HasSubstr(expected));
  }
}

TEST(DefinitionsTest, HoldsAtTheLimitAndNeverForNan) {
  for (const Kind kind : {Kind::kMax, Kind::kGoalMax}) {
    EXPECT_TRUE(Holds({.kind = kind, .limit = 2}, 2));
    EXPECT_FALSE(Holds({.kind = kind, .limit = 2}, 2.01));
  }
  for (const Kind kind : {Kind::kMin, Kind::kGoalMin}) {
    EXPECT_TRUE(Holds({.kind = kind, .limit = 2}, 2));
    EXPECT_FALSE(Holds({.kind = kind, .limit = 2}, 1.99));
  }
  for (const Kind kind : {Kind::kMax, Kind::kMin})
    EXPECT_FALSE(Holds({.kind = kind}, std::nan("")));
}

TEST(DefinitionsTest, EveryFigureOfTheProgramIsDefined) {
  const auto bars = ReadBars("bench/bars.tsv");
  ASSERT_TRUE(bars.ok()) << bars.status();
  std::set<std::string_view> defined;
  for (const Bar& bar : *bars) defined.insert(bar.id);
  for (const std::string_view id : MeasuredIds()) EXPECT_TRUE(defined.contains(id)) << id;
  EXPECT_FALSE(MeasuredIds().empty());
}

}  // namespace
}  // namespace tetrad::bars
