// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/client_bytes.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

TEST(ClientBytesTest, LimitsHoldToTheByte) {
  const auto bytes = ClientBytes::Create("ticket_bytes", {.all = 150, .client = 100});
  auto first = bytes->Take("a", 99);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(DetailOf(bytes->Take("a", 2).status())->reason, Reason::kQuota);
  EXPECT_TRUE(first->Grow(1).ok());
  const absl::Status over = bytes->Take("a", 1).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(over)->reason, Reason::kQuota);
  auto second = bytes->Take("b", 50);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(DetailOf(second->Grow(1))->reason, Reason::kTableFull);
  EXPECT_EQ(second->bytes(), 50);
  EXPECT_EQ(bytes->used_bytes(), 150);
  EXPECT_EQ(bytes->used_bytes("a"), 100);
  first->ShrinkTo(40);
  EXPECT_TRUE(second->Grow(50).ok());
  EXPECT_EQ(bytes->used_bytes("b"), 100);
  *second = *std::move(first);
  EXPECT_EQ(bytes->used_bytes("b"), 0);
  EXPECT_EQ(bytes->used_bytes(), 40);
}

TEST(ClientBytesTest, WhatCouldNeverBeHadIsInvalid) {
  const auto bytes = ClientBytes::Create("ticket_bytes", {.all = 150, .client = 100});
  EXPECT_EQ(bytes->Take("a", 101).status().code(), absl::StatusCode::kInvalidArgument);
  auto held = bytes->Take("a", 60);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->Grow(41).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(held->bytes(), 60);
}

TEST(ClientBytesTest, AHoldOutlivesWhoGaveIt) {
  auto bytes = ClientBytes::Create("ticket_bytes", {.all = 150, .client = 100});
  auto held = bytes->Take("a", 60);
  const std::weak_ptr<ClientBytes> weak = bytes;
  bytes.reset();
  EXPECT_FALSE(weak.expired());
  *held = ClientBytes::Hold();
  EXPECT_TRUE(weak.expired());
}

TEST(ClientBytesTest, ManyThreadsLeaveNothing) {
  const auto bytes = ClientBytes::Create("ticket_bytes", {.all = 1000, .client = 600});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&bytes, t] {
      const std::string client(1, static_cast<char>('a' + t % 2));
      for (int i = 0; i < 2000; ++i) {
        auto held = bytes->Take(client, 100 + i % 300);
        EXPECT_LE(bytes->used_bytes(), 1000);
        EXPECT_LE(bytes->used_bytes(client), 600);
        if (held.ok() && i % 3 == 0) held->ShrinkTo(7);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bytes->used_bytes(), 0);
  EXPECT_EQ(bytes->used_bytes("a"), 0);
}

}  // namespace
}  // namespace tetrad
