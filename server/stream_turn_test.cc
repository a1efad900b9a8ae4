// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stream_turn.h"

#include <gtest/gtest.h>

namespace tetrad {
namespace {

const absl::Status kEnd = absl::AbortedError("from outside");
void Start() {}

TEST(StreamTurnTest, WhoeverBringsTheEndFinishesAStreamThatReads) {
  StreamTurn turn;
  EXPECT_FALSE(turn.NextRead(Start).has_value());
  EXPECT_TRUE(turn.EndFromOutside(kEnd));
  EXPECT_FALSE(turn.EndFromOutside(kEnd)) << "once";
  EXPECT_FALSE(turn.Take()) << "the read that was pending has nothing to do";
}

TEST(StreamTurnTest, AnEndDuringTheOwnTurnIsFoundAtItsEnd) {
  StreamTurn turn;
  EXPECT_FALSE(turn.NextRead(Start).has_value());
  EXPECT_TRUE(turn.Take());
  EXPECT_FALSE(turn.EndFromOutside(kEnd));
  bool read = false;
  EXPECT_EQ(turn.NextRead([&read] { read = true; }), kEnd);
  EXPECT_FALSE(read);
}

TEST(StreamTurnTest, NothingFinishesBesideAReadThatIsBeingStarted) {
  StreamTurn turn;
  EXPECT_EQ(turn.NextRead([&] { EXPECT_FALSE(turn.EndFromOutside(kEnd)); }), kEnd);
}

// The library may run the next OnReadDone() before starting a read returns.
TEST(StreamTurnTest, ATurnInsideTheStartOfARead) {
  StreamTurn turn;
  const auto outer = turn.NextRead([&] {
    EXPECT_TRUE(turn.Take());
    EXPECT_FALSE(turn.EndFromOutside(kEnd));
    EXPECT_EQ(turn.NextRead(Start), kEnd);
  });
  EXPECT_FALSE(outer.has_value()) << "finished by the inner one";
  StreamTurn other;
  const auto last = other.NextRead([&] {
    EXPECT_TRUE(other.Take());
    EXPECT_FALSE(other.NextRead([&] { EXPECT_FALSE(other.EndFromOutside(kEnd)); }).has_value());
  });
  EXPECT_EQ(last, kEnd);
}

TEST(StreamTurnTest, AStreamThatFinishedItselfIsNotEnded) {
  StreamTurn turn;
  turn.Finish();
  EXPECT_FALSE(turn.EndFromOutside(kEnd));
}

}  // namespace
}  // namespace tetrad
