// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/access_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// printf %s alpha | sha256sum, and of beta
constexpr char kAlpha[] = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
constexpr char kBeta[] = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string TokenEntry(const std::string& name, const std::string& digest,
                       const std::string& groups, const std::string& more = "") {
  return absl::StrCat("[[tokens]]\nname = \"", name, "\"\nsha256 = \"", digest,
                      "\"\ngroups = ", groups, "\n", more, "\n");
}

AccessTable Parsed(const std::string& text) {
  absl::StatusOr<AccessTable> table = AccessTable::Parse(text, "access.toml");
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

std::string Error(const std::string& text) {
  const absl::Status status = AccessTable::Parse(text, "access.toml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

// The client's name, or the reason of the refusal.
std::string Decision(const AccessTable& table, Method method, const Peer& peer,
                     const std::string& header = "", absl::Time now = kNow) {
  const AccessTable::Verdict verdict =
      table.Decide(peer, header.empty() ? Credential{} : Credential::OfHeader(header),
                   GroupsOf(method), MethodName(method), now);
  if (verdict.status.ok()) return verdict.client;
  return std::string(ReasonName(DetailOf(verdict.status)->reason));
}

constexpr Origin kUnix = Origin::kUnix;
constexpr Origin kTcp = Origin::kTcp;

TEST(AccessTableTest, WeightsAreThoseOfWhoDecides) {
  const AccessTable table = Parsed(TokenEntry("a", kAlpha, "[\"client\"]", "weight = 1000") +
                                   TokenEntry("b", kBeta, "[\"client\"]") +
                                   "[[subjects]]\nname = \"s\"\ngroups = [\"client\"]\nweight = 7\n"
                                   "[[subjects]]\nname = \"t\"\ngroups = [\"client\"]\n");
  const auto weight = [&](const Peer& peer, const std::string& header) {
    return table
        .Decide(peer, header.empty() ? Credential{} : Credential::OfHeader(header),
                GroupsOf(Method::kExecute), "x", kNow)
        .weight;
  };
  EXPECT_EQ(weight({kUnix}, "Bearer alpha"), 1000);
  EXPECT_EQ(weight({kUnix}, "Bearer beta"), 1);
  EXPECT_EQ(weight({kTcp, "s"}, "Bearer alpha"), 7);
  EXPECT_EQ(weight({kTcp, "t"}, "Bearer alpha"), 1);
  EXPECT_EQ(weight({kTcp, "unlisted"}, ""), 1);
  EXPECT_EQ(weight({kUnix}, ""), 1);
}

TEST(AccessTableTest, NothingListedIsNothingAllowed) {
  const AccessTable table = Parsed("");
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}), "NO_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kExecute, {kTcp, "known-to-the-ca"}), "NOT_ALLOWED");
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}, "Bearer alpha"), "BAD_CREDENTIAL");
}

TEST(AccessTableTest, AnonymousGroupsAreThoseOfTheListener) {
  const AccessTable table = Parsed(
      "anonymous_unix = [\"client\", \"operator\"]\nanonymous_tcp = []\n"
      "anonymous_http = [\"metrics\"]\n");
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}), "anonymous@unix");
  EXPECT_EQ(Decision(table, Method::kUpload, {kUnix}), "anonymous@unix");
  EXPECT_EQ(Decision(table, Method::kDrain, {kUnix}), "NO_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kExecute, {kTcp}), "NO_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kGetStatus, {Origin::kHttp}), "anonymous@http");
}

TEST(AccessTableTest, TokenGivesItsNameAndGroupsAndNoMore) {
  const AccessTable table =
      Parsed("anonymous_unix = [\"client\"]\n" + TokenEntry("a", kAlpha, "[\"operator\"]") +
             TokenEntry("b", kBeta, "[\"metrics\", \"admin\"]"));
  EXPECT_EQ(Decision(table, Method::kSeal, {kTcp}, "Bearer alpha"), "token:a");
  EXPECT_EQ(Decision(table, Method::kSeal, {kTcp}, "bEARER alpha"), "token:a");
  // Even what anonymous callers may.
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}, "Bearer alpha"), "NOT_ALLOWED");
  EXPECT_EQ(Decision(table, Method::kDrain, {kTcp}, "Bearer beta"), "token:b");
  EXPECT_EQ(Decision(table, Method::kGetStatus, {kTcp}, "Bearer beta"), "token:b");
  EXPECT_EQ(Decision(table, Method::kSeal, {kTcp}, "Bearer beta"), "NOT_ALLOWED");
}

TEST(AccessTableTest, WrongHeadersAreRefusedEvenWhereNoneIsNeeded) {
  const AccessTable table =
      Parsed("anonymous_unix = [\"client\"]\n" + TokenEntry("a", kAlpha, "[\"client\"]"));
  for (const std::string header : {"alpha", "Bearer", "Bearer ", "Bearer  alpha", "Bearer alpha ",
                                   "Bearer alph", "Bearer Alpha", "Bearer alphaa", "Basic alpha",
                                   "Bearer al pha", "Bearer =", "Bearer \x80", kAlpha}) {
    EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}, header), "BAD_CREDENTIAL") << header;
  }
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}, "Bearer " + std::string(kAlpha)),
            "BAD_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kExecute, {kUnix}, "Bearer " + std::string(1 << 20, 'a')),
            "BAD_CREDENTIAL");
}

TEST(AccessTableTest, TokenExpiresAtItsTime) {
  const AccessTable table =
      Parsed(TokenEntry("a", kAlpha, "[\"client\"]", "expires = 2027-01-15T08:00:00Z") +
             TokenEntry("b", kBeta, "[\"client\"]", "expires = 2027-01-15T10:00:01+02:00"));
  EXPECT_EQ(Decision(table, Method::kList, {kTcp}, "Bearer alpha", kNow - absl::Seconds(1)),
            "token:a");
  EXPECT_EQ(Decision(table, Method::kList, {kTcp}, "Bearer alpha", kNow), "BAD_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kList, {kTcp}, "Bearer beta", kNow), "token:b");
  EXPECT_EQ(Decision(table, Method::kList, {kTcp}, "Bearer beta", kNow + absl::Seconds(1)),
            "BAD_CREDENTIAL");
}

TEST(AccessTableTest, ListedSubjectComesBeforeTokenBeforeUnlistedSubject) {
  const AccessTable table =
      Parsed("anonymous_tcp = [\"client\"]\n" + TokenEntry("a", kAlpha, "[\"operator\"]") +
             "[[subjects]]\nname = \"spiffe://x/op\"\ngroups = [\"admin\"]\n");
  const Peer listed{kTcp, "spiffe://x/op"}, other{kTcp, "spiffe://x/o"};
  EXPECT_EQ(Decision(table, Method::kDrain, listed), "tls:spiffe://x/op");
  EXPECT_EQ(Decision(table, Method::kDrain, listed, "Bearer alpha"), "tls:spiffe://x/op");
  EXPECT_EQ(Decision(table, Method::kSeal, listed, "Bearer alpha"), "NOT_ALLOWED");
  EXPECT_EQ(Decision(table, Method::kDrain, listed, "Bearer alph"), "BAD_CREDENTIAL");
  EXPECT_EQ(Decision(table, Method::kSeal, other, "Bearer alpha"), "token:a");
  EXPECT_EQ(Decision(table, Method::kExecute, other), "tls:spiffe://x/o");
  EXPECT_EQ(Decision(table, Method::kDrain, other), "NOT_ALLOWED");
}

TEST(AccessTableTest, RefusalsNameMethodAndGroupButNoToken) {
  const AccessTable table = Parsed(TokenEntry("a", kAlpha, "[\"client\"]"));
  const auto message = [&](const std::string& header) {
    return std::string(table
                           .Decide({kTcp}, Credential::OfHeader(header), GroupsOf(Method::kSeal),
                                   MethodName(Method::kSeal), kNow)
                           .status.message());
  };
  EXPECT_EQ(message("Bearer alpha"),
            "tetrad.v1.Weights/Seal needs group operator, which token:a is not in");
  EXPECT_THAT(message("Bearer s3cret"), Not(HasSubstr("s3cret")));
  EXPECT_THAT(message("s3cret"), Not(HasSubstr("s3cret")));
}

TEST(AccessTableTest, EveryMethodBelongsToAGroup) {
  for (size_t m = 0; m < kMethods; ++m) {
    EXPECT_NE(GroupsOf(static_cast<Method>(m)), Groups::kNone)
        << MethodName(static_cast<Method>(m));
  }
}

TEST(AccessTableTest, ErrorsNameFileAndLine) {
  const std::string good = TokenEntry("a", kAlpha, "[\"client\"]");
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {
      {"tokens = 3", "access.toml:1: tokens: wanted [[tokens]]"},
      {"\ntokens = [3]", "access.toml:2: tokens: wanted [[tokens]]"},
      {"token = []", "access.toml:1: unknown key 'token'"},
      {"\n\nanonymous_unix = \"client\"", "access.toml:3: anonymous_unix: wanted a list"},
      {"anonymous_unix = [\"clients\"]", "access.toml:1: anonymous_unix: a group is none of"},
      {"anonymous_tcp = [3]", "access.toml:1: anonymous_tcp: a group is none of"},
      {good + good, "token 'a': there are two of this name"},
      {good + TokenEntry("b", kAlpha, "[]"), "token 'b': another one has the same sha256"},
      {TokenEntry("a b", kAlpha, "[]"), "'a b' does not match"},
      {TokenEntry("", kAlpha, "[]"), "'' does not match"},
      {TokenEntry(std::string(65, 'n'), kAlpha, "[]"), "does not match"},
      {TokenEntry("a", "secret", "[]"), "sha256 must be 64 hexadecimal digits"},
      {TokenEntry("a", std::string(64, 'g'), "[]"), "sha256 must be 64 hexadecimal digits"},
      {TokenEntry("a", kAlpha, "[]", "weight = 0"),
       "tokens.weight: wanted a whole number from 1 to 1000"},
      {TokenEntry("a", kAlpha, "[]", "weight = 1001"), "tokens.weight: wanted a whole number"},
      {TokenEntry("a", kAlpha, "[]", "weight = 1.5"), "tokens.weight: wanted a whole number"},
      {"[[subjects]]\nname = \"a\"\ngroups = []\nweight = \"2\"\n",
       "subjects.weight: wanted a whole number"},
      {TokenEntry("a", kAlpha, "[]", "expires = 3"), "tokens.expires: wanted a time"},
      {TokenEntry("a", kAlpha, "[]", "expires = 2027-01-01"), "tokens.expires: wanted a time"},
      {TokenEntry("a", kAlpha, "[]", "expires = 2027-01-01T00:00:00"), "wanted a time with an"},
      {TokenEntry("a", kAlpha, "[]", "note = 1"), "access.toml:5: unknown key 'tokens.note'"},
      {"[[tokens]]\nname = 3", "access.toml:2: tokens.name: wanted a text"},
      {"[[tokens]]\nname = \"a\"", "access.toml:1: token 'a': has no groups"},
      {"[[subjects]]\nname = \"a b\"\ngroups = []", "subject 'a b': must be"},
      {"[[subjects]]\nname = \"\\u0000\"\ngroups = []", "subject '\\x00': must be"},
      {"[[subjects]]\nname = \"a\"", "subject 'a': has no groups"},
      {"[[subjects]]\nname = \"a\"\ngroups = []\n[[subjects]]\nname = \"a\"\ngroups = []",
       "access.toml:4: subject 'a': there are two"},
      {"[[subjects]]\nuid = 3", "unknown key 'subjects.uid'"},
      {"[[tokens", "access.toml:1: "},
      {std::string("\0\0", 2), "access.toml:1: "},
      {"x = " + std::string(100'000, '['), "access.toml:1: "},
      {std::string((1 << 20) + 1, ' '), "1048577 bytes, the limit is 1048576"},
  };
  for (const auto& test : kCases) {
    const std::string error = Error(test.text);
    EXPECT_THAT(error, HasSubstr(test.message)) << test.text.substr(0, 200);
    EXPECT_LT(error.size(), 1000u);
    EXPECT_THAT(error, Not(HasSubstr("secret")));
  }
}

TEST(AccessTableTest, EntriesAreBounded) {
  const auto subjects = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&text, "[[subjects]]\nname = \"s", i, "\"\ngroups = [\"client\"]\n");
    }
    return text;
  };
  EXPECT_EQ(Parsed(subjects(4096)).subjects(), 4096u);
  EXPECT_THAT(Error(subjects(4097)), HasSubstr("subjects: 4097 entries, the limit is 4096"));
}

}  // namespace
}  // namespace tetrad
