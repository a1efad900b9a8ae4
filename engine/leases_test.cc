// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LeasesTest : public ::testing::Test {
 protected:
  Instant Step(Instant now) {
    ended_.clear();
    return leases_.Step(now, ended_);
  }
  Leases leases_{{.grace = absl::Nanoseconds(100), .max_leases = 3}, /*generation=*/5};
  std::vector<LeaseNumber> ended_;
};

TEST_F(LeasesTest, LivesWhileAttachedAndForTheGraceTime) {
  const std::string lease = *leases_.Open("c");
  const LeaseNumber number = *leases_.Find("c", lease);
  EXPECT_EQ(Step(1'000'000), kNever);  // attached: for ever
  EXPECT_THAT(ended_, IsEmpty());
  leases_.Detach(lease, 1, 50);
  leases_.Detach(lease, 1, 90);  // once more changes nothing
  EXPECT_EQ(Step(149), 150);
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_TRUE(leases_.Find("c", lease).ok());  // still usable in the grace time
  EXPECT_EQ(Step(150), kNever);
  EXPECT_THAT(ended_, ElementsAre(number));
  EXPECT_FALSE(leases_.Lives(number));
  EXPECT_TRUE(absl::IsAborted(leases_.Find("c", lease).status()));
  EXPECT_TRUE(absl::IsAborted(leases_.Resume("c", lease).status()));
  EXPECT_TRUE(absl::IsAborted(leases_.End("c", lease).status()));
  EXPECT_EQ(leases_.stats().expired, 1);
}

TEST_F(LeasesTest, ResumingStopsTheClock) {
  const std::string lease = *leases_.Open("c");
  leases_.Detach(lease, 1, 0);
  EXPECT_EQ(leases_.stats().detached, 1);
  EXPECT_TRUE(absl::IsPermissionDenied(leases_.Resume("d", lease).status()));
  EXPECT_EQ(*leases_.Resume("c", lease), 2u);
  EXPECT_EQ(leases_.stats().detached, 0);
  EXPECT_EQ(Step(1000), kNever);
  leases_.Detach(lease, 2, 1000);
  EXPECT_EQ(Step(1099), 1100);
  EXPECT_TRUE(leases_.Find("c", lease).ok());
}

// A client that is back before its old connection is known to be dead.
TEST_F(LeasesTest, TheNewestAttachmentCounts) {
  const std::string lease = *leases_.Open("c");
  EXPECT_EQ(*leases_.Resume("c", lease), 2u);
  leases_.Detach(lease, 1, 0);  // the old one's end
  EXPECT_EQ(leases_.stats().detached, 0);
  EXPECT_EQ(Step(1000), kNever);
  leases_.Detach(lease, 2, 1000);
  EXPECT_EQ(Step(1000), 1100);
  EXPECT_EQ(*leases_.Resume("c", lease), 3u);
  leases_.Detach(lease, 2, 1050);  // told twice
  EXPECT_EQ(Step(2000), kNever);
  EXPECT_TRUE(leases_.Find("c", lease).ok());
}

TEST_F(LeasesTest, AnOperatorEndsAnybodysAndHearsWhoseItWas) {
  const std::string lease = *leases_.Open("c");
  const LeaseNumber number = *leases_.Find("c", lease);
  leases_.Detach(lease, 1, 10);
  const auto ended = leases_.End(lease);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->number, number);
  EXPECT_EQ(ended->client, "c");
  EXPECT_TRUE(absl::IsAborted(leases_.End(lease).status()));
  EXPECT_EQ(Step(1'000'000), kNever);
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(LeasesTest, EndsAtOnceAndMakesRoom) {
  std::vector<std::string> held;
  for (int i = 0; i < 3; ++i) held.push_back(*leases_.Open("c"));
  EXPECT_TRUE(absl::IsResourceExhausted(leases_.Open("c").status()));
  leases_.Detach(held[1], 1, 10);
  EXPECT_TRUE(absl::IsPermissionDenied(leases_.End("d", held[1]).status()));
  const LeaseNumber number = *leases_.Find("c", held[1]);
  EXPECT_EQ(*leases_.End("c", held[1]), number);
  EXPECT_EQ(Step(1'000'000), kNever);  // nothing is left to expire
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_TRUE(leases_.Open("c").ok());
  EXPECT_EQ(leases_.stats().leases, 3);
}

TEST_F(LeasesTest, MalformedNamesAndTimesAtTheEndOfTime) {
  EXPECT_TRUE(absl::IsInvalidArgument(leases_.Find("c", "lease-").status()));
  leases_.Detach("nonsense", 1, 0);
  const std::string lease = *leases_.Open("c");
  leases_.Detach(lease, 1, kNever - 1);
  EXPECT_EQ(Step(kNever - 2), kNever - 1);
  EXPECT_EQ(leases_.stats().detached, 1);
}

}  // namespace
}  // namespace tetrad
