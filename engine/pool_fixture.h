// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PoolFixture: test support, a pool over a simulated upstream that holds bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "engine/pool.h"
#include "engine/simulated_upstream.h"

namespace tetrad {

class PoolFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kChunk = 64 << 10;
  static constexpr int64_t kPage = 4096;

  PoolFixture() { Make({}); }
  void Make(SimulatedUpstream::Options upstream, Pool::Options options = {}) {
    pool_.reset();
    upstream.holds_bytes = true;
    options.chunk_bytes = kChunk;
    upstream_ = std::make_unique<SimulatedUpstream>(std::move(upstream));
    pool_ = std::make_unique<Pool>(upstream_->upstream(), std::move(options));
  }
  BlockRef Allocate(int64_t bytes) {
    const auto block = pool_->Allocate(bytes);
    EXPECT_TRUE(block.ok()) << block.status();
    return block.value_or(BlockRef{});
  }
  void Fill(const BlockRef& block, int value) {
    std::fill_n(upstream_->data(block.allocation, block.offset), block.bytes,
                static_cast<std::byte>(value));
  }
  bool Holds(const BlockRef& block, int value) {
    const std::byte* const data = upstream_->data(block.allocation, block.offset);
    return std::all_of(data, data + block.bytes,
                       [&](std::byte b) { return b == static_cast<std::byte>(value); });
  }
  // Whatever happened, the books agree with each other and with upstream's.
  void ExpectBalanced() {
    const Pool::Stats stats = pool_->stats();
    ASSERT_EQ(stats.reserved_bytes, upstream_->stats().bytes);
    ASSERT_EQ(stats.reserved_bytes,
              stats.block_bytes + stats.free_bytes + stats.whole_bytes + stats.unreturned_bytes);
    ASSERT_LE(stats.largest_free_bytes, stats.free_bytes);
    ASSERT_EQ(stats.allocations - stats.frees, stats.blocks + stats.wholes);
  }
  void ExpectEmptyAfterTrim() {
    pool_->Trim();
    ExpectBalanced();
    const Pool::Stats stats = pool_->stats();
    EXPECT_EQ(stats.reserved_bytes, 0);
    EXPECT_EQ(stats.chunks + stats.blocks + stats.wholes, 0);
    EXPECT_EQ(upstream_->stats().allocations, 0);
  }

  std::unique_ptr<SimulatedUpstream> upstream_;
  std::unique_ptr<Pool> pool_;  // goes before it
};

}  // namespace tetrad
