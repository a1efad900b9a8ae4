// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pool over many seeded operations and with a failure at every place.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/pool_fixture.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

using Call = SimulatedUpstream::Call;

class PoolPropertyTest : public PoolFixture {};

TEST_F(PoolPropertyTest, AgreesWithTheModelOverRandomOperations) {
  struct Owned {
    BlockRef block;
    int value;
    int64_t counted_bytes;
    bool whole;
  };
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Make({.limit_bytes = 6 * kChunk});
    Random random(seed);
    std::vector<Owned> owned;
    int64_t block_bytes = 0;
    int64_t whole_bytes = 0;
    int refused = 0;
    const auto free_one = [&] {
      std::swap(owned[random.Below(static_cast<uint32_t>(owned.size()))], owned.back());
      const Owned one = owned.back();
      owned.pop_back();
      ASSERT_TRUE(Holds(one.block, one.value)) << "somebody else wrote there";
      (one.whole ? whole_bytes : block_bytes) -= one.counted_bytes;
      one.whole ? pool_->FreeWhole(one.block.allocation) : pool_->Free(one.block);
    };
    for (int step = 0; step < 2500; ++step) {
      const bool drain = step / 250 % 2 == 1;
      if (!owned.empty() && random.Below(10) < (drain ? 6u : 4u)) {
        ASSERT_NO_FATAL_FAILURE(free_one());
      } else {
        Owned one{{}, random.Between(1, 255), 0, random.OneIn(16)};
        const int64_t bytes = random.OneIn(10) ? random.Between(1, 2 * kChunk)
                                               : random.Between(1, random.OneIn(3) ? 9000 : 900);
        if (one.whole) {
          const auto allocation = pool_->AllocateWhole(bytes);
          if (allocation.ok()) one.block = {allocation->id, 0, allocation->bytes};
        } else {
          one.block = pool_->Allocate(bytes).value_or(BlockRef{});
          ASSERT_EQ(one.block.offset % 256, 0);
        }
        if (one.block.allocation == AllocationId::kNone) {
          ++refused;
        } else {
          const bool pages = one.whole || bytes > kChunk / 2;
          one.counted_bytes =
              pages ? (bytes + kPage - 1) / kPage * kPage : (bytes + 255) / 256 * 256;
          (one.whole ? whole_bytes : block_bytes) += one.counted_bytes;
          ASSERT_TRUE(Holds(one.block, 0)) << "not cleared";
          Fill(one.block, one.value);
          owned.push_back(one);
        }
      }
      ASSERT_EQ(pool_->stats().block_bytes, block_bytes);
      ASSERT_EQ(pool_->stats().whole_bytes, whole_bytes);
      ASSERT_EQ(pool_->stats().failures, refused);
      ASSERT_NO_FATAL_FAILURE(ExpectBalanced());
      if (random.OneIn(100)) pool_->Trim();
    }
    EXPECT_GT(refused, 0);  // else the limit was never met
    while (!owned.empty()) ASSERT_NO_FATAL_FAILURE(free_one());
    ExpectEmptyAfterTrim();
  }
}

// Runs a fixed scenario; requests may fail. Returns how many did.
int RunScenario(Pool& pool, int64_t chunk_bytes, const std::function<void()>& after_each) {
  std::vector<BlockRef> blocks;
  std::vector<AllocationId> wholes;
  int failures = 0;
  Random random(7);
  for (int step = 0; step < 60; ++step) {
    const int64_t bytes = random.OneIn(5) ? random.Between(chunk_bytes / 2, 2 * chunk_bytes)
                                          : random.Between(1, chunk_bytes / 3);
    if (random.OneIn(4)) {
      const auto whole = pool.AllocateWhole(bytes);
      if (whole.ok()) wholes.push_back(whole->id);
      failures += !whole.ok();
    } else {
      const auto block = pool.Allocate(bytes);
      if (block.ok()) blocks.push_back(*block);
      failures += !block.ok();
    }
    if (random.OneIn(2) && !blocks.empty()) {
      std::swap(blocks[random.Below(static_cast<uint32_t>(blocks.size()))], blocks.back());
      pool.Free(blocks.back());
      blocks.pop_back();
    }
    if (random.OneIn(4) && !wholes.empty()) {
      pool.FreeWhole(wholes.back());
      wholes.pop_back();
    }
    after_each();
  }
  for (const BlockRef& block : blocks) pool.Free(block);
  for (const AllocationId id : wholes) pool.FreeWhole(id);
  return failures;
}

TEST_F(PoolPropertyTest, AFailureOfAnyUpstreamCallLeavesTheBooksBalanced) {
  for (const Call kind : {Call::kAllocate, Call::kFree, Call::kClear}) {
    for (const int failing : {1, 2, 3, 7, INT32_MAX}) {  // how many calls in a row
      int refusals = 0;
      int n = 0;
      for (bool reached = true; reached; ++n) {
        SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << ", call " << n
                                          << ", " << failing << " in a row");
        int calls = 0;
        bool lifted = false;
        Make({.fault = [&](Call call) {
          if (call != kind || lifted) return absl::OkStatus();
          const int at = calls++;
          return at >= n && at - n < failing ? absl::ResourceExhaustedError("injected")
                                             : absl::OkStatus();
        }});
        refusals += RunScenario(*pool_, kChunk, [&] { ASSERT_NO_FATAL_FAILURE(ExpectBalanced()); });
        ASSERT_EQ(pool_->stats().blocks + pool_->stats().wholes, 0);
        reached = calls > n;
        lifted = true;
        const BlockRef small = Allocate(1000);
        const BlockRef large = Allocate(3 * kChunk);
        EXPECT_TRUE(Holds(small, 0));
        pool_->Free(small);
        pool_->Free(large);
        ExpectEmptyAfterTrim();
      }
      EXPECT_GT(n, 10);
      EXPECT_EQ(refusals > 0, kind != Call::kFree);
    }
  }
}

}  // namespace
}  // namespace tetrad
