// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/identity.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

constexpr ListenAddress::Kind kUnix = ListenAddress::Kind::kUnix;
constexpr ListenAddress::Kind kTcp = ListenAddress::Kind::kTcp;

TEST(IdentitiesTest, OneKindOfListenerNeedsNoLookUp) {
  const auto never = []() -> std::string {
    ADD_FAILURE() << "the peer was looked up";
    return "";
  };
  EXPECT_EQ(Identities({{.kind = kUnix}, {.kind = kUnix}}).Of(never), Origin::kUnix);
  EXPECT_EQ(Identities({{.kind = kTcp}}).Of(never), Origin::kTcp);
}

TEST(IdentitiesTest, WithBothKindsThePeerDecides) {
  const Identities identities({{.kind = kUnix}, {.kind = kTcp}});
  EXPECT_EQ(identities.Of([] { return std::string("unix:"); }), Origin::kUnix);
  EXPECT_EQ(identities.Of([] { return std::string("unix:/run/x.sock"); }), Origin::kUnix);
  EXPECT_EQ(identities.Of([] { return std::string("ipv4:127.0.0.1:5"); }), Origin::kTcp);
  EXPECT_EQ(identities.Of([] { return std::string("ipv6:[::1]:5"); }), Origin::kTcp);
}

TEST(IdentitiesTest, SubjectIsTheFirstNameThatIsSafeToShow) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(Subject({}), "");
  EXPECT_EQ(Subject(Names{"cn", "spiffe://x/y", "host"}), "cn");
  const std::string longest(128, 'n'), too_long(129, 'n');
  EXPECT_EQ(Subject(Names{"", "a b", "a\nb", "\x7F", "\xC3\xBC", too_long, longest, "x"}), longest);
  EXPECT_EQ(Subject(Names{std::string_view("good\0.evil", 10)}), "");
  EXPECT_EQ(SubjectClient("cn"), "tls:cn");
}

}  // namespace
}  // namespace tetrad
