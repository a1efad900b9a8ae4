// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/request_id.h"

#include <set>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(RequestIdTest, OnlyShortPrintableNamesAreIds) {
  for (const std::string& id :
       {std::string("a"), std::string("AZaz09._:/+=-"), std::string(128, 'x'),
        std::string("123e4567-e89b-12d3-a456-426614174000")}) {
    EXPECT_TRUE(IsRequestId(id)) << id;
  }
  for (const std::string& id :
       {std::string(), std::string(129, 'x'), std::string("a b"), std::string("a\nb"),
        std::string("a\"b"), std::string("\xC3\xA4"), std::string("a\0b", 3), std::string("a@b"),
        std::string("[a]"), std::string("`a`")}) {
    EXPECT_FALSE(IsRequestId(id)) << id;
  }
}

TEST(RequestIdTest, AClientsIdIsKeptAndOthersAreReplaced) {
  RequestIds ids(absl::FromUnixMicros(0xABC));
  EXPECT_EQ(ids.Choose("trace/1"), "trace/1");
  EXPECT_EQ(ids.Choose(""), "abc-1");
  EXPECT_EQ(ids.Choose("not an id"), "abc-2");
}

TEST(RequestIdTest, GeneratedIdsAreUniqueAcrossProcesses) {
  RequestIds first(absl::FromUnixMicros(1'790'000'000'000'000));
  RequestIds second(absl::FromUnixMicros(1'790'000'000'000'001));
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    for (RequestIds* ids : {&first, &second}) {
      const std::string id = ids->Choose("");
      EXPECT_TRUE(IsRequestId(id)) << id;
      EXPECT_TRUE(seen.insert(id).second) << id;
    }
  }
}

}  // namespace
}  // namespace tetrad
