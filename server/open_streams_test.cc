// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/open_streams.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Ear {
  std::vector<DrainStage> heard;
  OpenStreams::Listener listener() {
    return [this](DrainStage stage) { heard.push_back(stage); };
  }
};

TEST(OpenStreamsTest, EachHearsTheStagesOfItsTime) {
  OpenStreams streams;
  Ear early, late, gone;
  const OpenStreams::Joined first = streams.Join(StreamKind::kAttach, early.listener());
  EXPECT_EQ(first.stage, DrainStage::kServing);
  { const auto left = streams.Join(StreamKind::kAttach, gone.listener()); }
  streams.Enter(DrainStage::kAnnounced);
  const OpenStreams::Joined second = streams.Join(StreamKind::kExecute, late.listener());
  EXPECT_EQ(second.stage, DrainStage::kAnnounced);
  streams.Enter(DrainStage::kClosed);
  EXPECT_THAT(early.heard, ElementsAre(DrainStage::kAnnounced, DrainStage::kClosed));
  EXPECT_THAT(late.heard, ElementsAre(DrainStage::kClosed));
  EXPECT_THAT(gone.heard, IsEmpty());
}

TEST(OpenStreamsTest, CountsByKindUntilTheMembershipEnds) {
  OpenStreams streams;
  const auto nothing = [](DrainStage) {};
  auto attach = streams.Join(StreamKind::kAttach, nothing).membership;
  {
    auto moved = streams.Join(StreamKind::kExecute, nothing).membership;
    OpenStreams::Membership target = std::move(moved);
    EXPECT_EQ(streams.open(StreamKind::kExecute), 1);
    target = streams.Join(StreamKind::kAttach, nothing).membership;
    EXPECT_EQ(streams.open(StreamKind::kExecute), 0);
    EXPECT_EQ(streams.open(StreamKind::kAttach), 2);
  }
  EXPECT_EQ(streams.open(StreamKind::kAttach), 1);
}

// A stream that is told to end leaves from within its listener.
TEST(OpenStreamsTest, ListenersMayLeaveAndJoin) {
  OpenStreams streams;
  OpenStreams::Membership own, other;
  own = streams
            .Join(StreamKind::kAttach,
                  [&](DrainStage) {
                    own = OpenStreams::Membership();
                    other = streams.Join(StreamKind::kExecute, [](DrainStage) {}).membership;
                  })
            .membership;
  streams.Enter(DrainStage::kClosed);
  EXPECT_EQ(streams.open(StreamKind::kAttach), 0);
  EXPECT_EQ(streams.open(StreamKind::kExecute), 1);
}

}  // namespace
}  // namespace tetrad
