// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/token_source.h"

#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenSourceTest : public ::testing::Test {
 protected:
  // Renamed into place, as those who replace tokens do.
  void Put(const std::string& text) const {
    std::ofstream(path_ + ".new", std::ios::binary) << text;
    ASSERT_EQ(std::rename((path_ + ".new").c_str(), path_.c_str()), 0);
  }
  ~TokenSourceTest() override { std::remove(path_.c_str()); }
  const std::string path_ = absl::StrCat(::testing::TempDir(), "token_source_test.", ::getpid());
};

TEST(IsTokenTest, TakesWhatAHeaderCanCarry) {
  for (const char* good : {"a", "abc123", "a-b._~+/c", "YWJj=="}) EXPECT_TRUE(IsToken(good));
  EXPECT_TRUE(IsToken(std::string(1024, 'a')));
  EXPECT_FALSE(IsToken(std::string(1025, 'a')));
  for (const char* bad : {"", "=", "a b", "a\n", "a=b", "\x80", "a\tb", "\""}) {
    EXPECT_FALSE(IsToken(bad)) << bad;
  }
}

TEST_F(TokenSourceTest, FixedTokenStays) {
  const auto source = TokenSource::Open("secret", "");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->Get(), "secret");
}

TEST_F(TokenSourceTest, FileIsReadAgainWhenItChanged) {
  Put("first\n");
  const auto source = TokenSource::Open("", path_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->Get(), "first");
  Put("other\n");
  EXPECT_EQ((*source)->Get(), "other");
  Put("not a token");
  EXPECT_EQ((*source)->Get(), "other");
  std::remove(path_.c_str());
  EXPECT_EQ((*source)->Get(), "other");
  Put("third");
  EXPECT_EQ((*source)->Get(), "third");
}

TEST_F(TokenSourceTest, RefusalsDoNotShowTheToken) {
  Put("not a token");
  for (const auto& [token, file] : {std::pair<std::string, std::string>{"not a token", ""},
                                    {"", path_},
                                    {"good", path_},
                                    {"", "/does/not/exist"}}) {
    const absl::Status status = TokenSource::Open(token, file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("not a token")));
  }
}

}  // namespace
}  // namespace tetrad
