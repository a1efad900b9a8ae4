// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/identity.h"

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
  EXPECT_EQ(Identities({{.kind = kUnix}, {.kind = kUnix}}).Of(never), "anonymous@unix");
  EXPECT_EQ(Identities({{.kind = kTcp}}).Of(never), "anonymous@tcp");
}

TEST(IdentitiesTest, WithBothKindsThePeerDecides) {
  const Identities identities({{.kind = kUnix}, {.kind = kTcp}});
  EXPECT_EQ(identities.Of([] { return std::string("unix:"); }), "anonymous@unix");
  EXPECT_EQ(identities.Of([] { return std::string("unix:/run/x.sock"); }), "anonymous@unix");
  EXPECT_EQ(identities.Of([] { return std::string("ipv4:127.0.0.1:5"); }), "anonymous@tcp");
  EXPECT_EQ(identities.Of([] { return std::string("ipv6:[::1]:5"); }), "anonymous@tcp");
}

}  // namespace
}  // namespace tetrad
