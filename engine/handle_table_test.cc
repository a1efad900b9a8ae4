// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/handle_table.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Table = HandleTable<int>;

constexpr LeaseNumber kLease{7};

Table MakeTable(const Table::Limits& limits, uint64_t generation = 1) {
  return Table(HandleNames("thing", generation, "ask again"), limits);
}

TEST(HandleTableTest, NamesEndTypedAndBelongToTheirClient) {
  Table table = MakeTable({.entries = {"things", 2}});
  const std::string a = *table.Add({"alice"}, 0, 11, 0);
  EXPECT_EQ(*table.Find("alice", a, 0), 11);
  EXPECT_TRUE(absl::IsPermissionDenied(table.Find("bob", a, 0).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(table.Remove("bob", a).status()));
  const std::string b = *table.Add({"bob"}, 0, 12, 0);
  EXPECT_NE(a, b);
  const absl::Status full = table.Add({"bob"}, 0, 13, 0).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("things: 1 wanted, 2 of 2 are held"));
  EXPECT_EQ(*table.Remove("alice", a), 11);
  const absl::Status stale = table.Find("alice", a, 0).status();
  EXPECT_TRUE(absl::IsAborted(stale));
  EXPECT_THAT(std::string(stale.message()), HasSubstr("ask again"));
  EXPECT_TRUE(absl::IsAborted(table.Remove("alice", a).status()));
  EXPECT_EQ(table.size(), 1);
}

TEST(HandleTableTest, ForeignAndForgedNamesAreTold) {
  Table table = MakeTable({});
  Table earlier = MakeTable({}, /*generation=*/2);
  const std::string name = *table.Add({"c"}, 0, 1, 0);
  EXPECT_TRUE(absl::IsAborted(table.Find("c", *earlier.Add({"c"}, 0, 1, 0), 0).status()));
  // The right number with another secret is not a name: nothing can be guessed.
  std::string forged = name;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_TRUE(absl::IsAborted(table.Find("c", forged, 0).status()));
  for (const std::string& text :
       {std::string(), std::string("thing"), std::string("x"), name + "x", name + "0",
        name.substr(1), name.substr(0, name.size() - 1), "thang" + name.substr(5)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(table.Find("c", text, 0).status())) << text;
  }
  std::string upper = name;
  upper[upper.size() - 1] = 'A';
  EXPECT_TRUE(absl::IsInvalidArgument(table.Find("c", upper, 0).status()));
}

TEST(HandleTableTest, LimitsHoldForAllAndForEach) {
  Table table =
      MakeTable({.bytes = {"b", 100}, .client_entries = {"ce", 3}, .client_bytes = {"cb", 70}});
  ASSERT_TRUE(table.Add({"a"}, 40, 1, 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add({"a"}, 31, 1, 0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(table.Admissible("a", 31)));
  const std::string second = *table.Add({"a"}, 30, 1, 0);
  ASSERT_TRUE(table.Add({"a"}, 0, 1, 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add({"a"}, 0, 1, 0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add({"b"}, 31, 1, 0).status()));
  ASSERT_TRUE(table.Add({"b"}, 30, 1, 0).ok());
  ASSERT_TRUE(table.Remove("a", second).ok());
  EXPECT_TRUE(table.Add({"b"}, 30, 1, 0).ok());
}

TEST(HandleTableTest, WhatHasALeaseGoesWithIt) {
  Table table = MakeTable({.idle_ns = 10});
  const std::string one = *table.Add({"c", kLease}, 1, 1, 0);
  const std::string two = *table.Add({"c", kLease}, 1, 2, 0);
  const std::string other = *table.Add({"c", LeaseNumber{8}}, 1, 3, 0);
  const std::string none = *table.Add({"c"}, 1, 4, 0);
  EXPECT_THAT(table.List(kLease), ElementsAre(Pair(one, 1), Pair(two, 2)));
  EXPECT_EQ(table.RemoveIdle(9), 10);  // what has a lease does not idle
  table.RemoveLease(kLease);
  table.RemoveLease(kLease);
  EXPECT_TRUE(absl::IsAborted(table.Find("c", one, 0).status()));
  EXPECT_TRUE(table.Find("c", other, 0).ok());
  EXPECT_EQ(table.RemoveIdle(10), kNever);
  EXPECT_TRUE(absl::IsAborted(table.Find("c", none, 0).status()));
  EXPECT_EQ(table.size(), 1);
}

TEST(HandleTableTest, UseKeepsWhatHasNoLease) {
  Table table = MakeTable({.idle_ns = 10});
  const std::string a = *table.Add({"c"}, 1, 1, 0);
  const std::string b = *table.Add({"c"}, 1, 2, 3);
  ASSERT_TRUE(table.Find("c", a, 8).ok());
  EXPECT_EQ(table.RemoveIdle(12), 13);
  EXPECT_EQ(table.RemoveIdle(13), 18);
  EXPECT_TRUE(absl::IsAborted(table.Find("c", b, 13).status()));
  EXPECT_TRUE(table.Find("c", a, 13).ok());
  EXPECT_EQ(table.RemoveIdle(18), 23);
}

// Against a slow obvious table: sums and members stay right in any order.
TEST(HandleTableTest, RandomUseKeepsTheSums) {
  struct Known {
    std::string name, client;
    LeaseNumber lease;
    int64_t bytes;
  };
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Table table = MakeTable({.entries = {"", 40}, .client_bytes = {"", 500}});
    std::vector<Known> known;
    for (int step = 0; step < 400; ++step) {
      const std::string client(1, static_cast<char>('a' + random() % 3));
      const LeaseNumber lease{random() % 4};
      if (random() % 3 != 0) {
        const int64_t bytes = static_cast<int64_t>(random() % 100);
        int64_t held = 0;
        for (const Known& k : known) held += k.client == client ? k.bytes : 0;
        const bool fits = known.size() < 40 && held + bytes <= 500;
        const auto name = table.Add({client, lease}, bytes, step, 0);
        ASSERT_EQ(name.ok(), fits) << name.status();
        if (fits) known.push_back({*name, client, lease, bytes});
      } else if (random() % 4 != 0 && !known.empty()) {
        const size_t i = random() % known.size();
        ASSERT_TRUE(table.Remove(known[i].client, known[i].name).ok());
        known.erase(known.begin() + static_cast<ptrdiff_t>(i));
      } else if (lease != LeaseNumber::kNone) {
        table.RemoveLease(lease);
        std::erase_if(known, [&](const Known& k) { return k.lease == lease; });
      }
      ASSERT_EQ(table.size(), static_cast<int64_t>(known.size()));
    }
    for (const Known& k : known) EXPECT_TRUE(table.Find(k.client, k.name, 0).ok());
  }
}

}  // namespace
}  // namespace tetrad
