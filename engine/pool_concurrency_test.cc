// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pool with many threads; also what a thread sanitizer should look at.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/pool.h"
#include "engine/simulated_upstream.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr int64_t kChunk = 64 << 10;
constexpr int kThreads = 4;

void InThreads(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back(work, i);
  for (std::thread& thread : running) thread.join();
}

// A flag that threads can wait for.
class Signal {
 public:
  void Set() {
    {
      std::lock_guard lock(mutex_);
      set_ = true;
    }
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }
  void WaitAtMost(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

TEST(PoolConcurrencyTest, ThreadsNeverShareMemoryAndTheBooksBalance) {
  SimulatedUpstream upstream({.limit_bytes = 24 * kChunk, .holds_bytes = true});
  std::atomic<int> relieved{0};
  std::atomic<int64_t> served{0};
  std::atomic<int64_t> refused{0};
  {
    Pool pool(upstream.upstream(),
              {.chunk_bytes = kChunk, .relieve = [&](int64_t) { return ++relieved % 2 == 0; }});
    InThreads(kThreads, [&](int index) {
      Random random(100 + index);
      struct Owned {
        BlockRef block;
        bool whole;
      };
      std::vector<Owned> owned;
      const auto mark = static_cast<std::byte>(index + 1);
      const auto all = [&](const BlockRef& block, std::byte value) {
        const std::byte* const data = upstream.data(block.allocation, block.offset);
        return std::all_of(data, data + block.bytes, [&](std::byte b) { return b == value; });
      };
      const auto free_last = [&] {
        const Owned one = owned.back();
        owned.pop_back();
        EXPECT_TRUE(all(one.block, mark));
        one.whole ? pool.FreeWhole(one.block.allocation) : pool.Free(one.block);
      };
      for (int step = 0; step < 1500; ++step) {
        if (!owned.empty() && random.Below(10) < (step / 100 % 2 == 1 ? 7u : 4u)) {
          std::swap(owned[random.Below(static_cast<uint32_t>(owned.size()))], owned.back());
          free_last();
          continue;
        }
        const int64_t bytes =
            random.OneIn(8) ? random.Between(1, 2 * kChunk) : random.Between(1, 6000);
        Owned one{{}, random.OneIn(12)};
        absl::Status status;
        if (one.whole) {
          const auto allocation = pool.AllocateWhole(bytes);
          status = allocation.status();
          if (status.ok()) one.block = {allocation->id, 0, allocation->bytes};
        } else {
          const auto block = pool.Allocate(bytes);
          status = block.status();
          if (status.ok()) one.block = *block;
        }
        if (!status.ok()) {
          EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
          ++refused;
          continue;
        }
        ++served;
        EXPECT_TRUE(all(one.block, std::byte{0}));
        std::fill_n(upstream.data(one.block.allocation, one.block.offset), one.block.bytes, mark);
        owned.push_back(one);
        if (random.OneIn(200)) pool.Trim();
        EXPECT_GE(pool.stats().reserved_bytes, one.block.bytes);
      }
      while (!owned.empty()) free_last();
    });
    pool.Trim();
    const Pool::Stats stats = pool.stats();
    EXPECT_EQ(stats.reserved_bytes, 0);
    EXPECT_EQ(stats.allocations, served);
    EXPECT_EQ(stats.frees, served);
    EXPECT_EQ(stats.failures, refused);
  }
  EXPECT_EQ(upstream.stats().allocations, 0);
}

TEST(PoolConcurrencyTest, ThreadsThatNeedAChunkAtOnceGetOne) {
  SimulatedUpstream simulated({});
  Pool::Upstream upstream = simulated.upstream();
  Signal second_fetch;
  std::atomic<int> fetches{0};
  upstream.allocate = [&](int64_t bytes) {
    // Room for a second fetch, which must not come.
    if (++fetches == 1) {
      second_fetch.WaitAtMost(std::chrono::milliseconds(50));
    } else {
      second_fetch.Set();
    }
    return simulated.Allocate(bytes);
  };
  Pool pool(upstream, {.chunk_bytes = kChunk});
  InThreads(kThreads, [&](int) {
    const auto block = pool.Allocate(kChunk / kThreads / 2);
    ASSERT_TRUE(block.ok()) << block.status();
    pool.Free(*block);
  });
  EXPECT_EQ(fetches, 1);
}

// The only memory is on its way back while another thread asks for it.
void MemoryOnItsWayBackIsWaitedFor(bool whole) {
  SimulatedUpstream simulated({.limit_bytes = kChunk});
  Pool::Upstream upstream = simulated.upstream();
  Signal freeing;
  Signal failed;
  upstream.allocate = [&](int64_t bytes) {
    auto allocation = simulated.Allocate(bytes);
    if (!allocation.ok()) failed.Set();
    return allocation;
  };
  upstream.free = [&](AllocationId id) {
    freeing.Set();
    failed.Wait();
    return simulated.Free(id);
  };
  Pool pool(upstream, {.chunk_bytes = kChunk});
  const auto first = pool.AllocateWhole(kChunk);
  ASSERT_TRUE(first.ok());
  InThreads(2, [&](int index) {
    if (index == 0) {
      pool.FreeWhole(first->id);
      return;
    }
    freeing.Wait();
    if (whole) {
      const auto second = pool.AllocateWhole(kChunk);
      ASSERT_TRUE(second.ok()) << second.status();
      pool.FreeWhole(second->id);
    } else {
      const auto second = pool.Allocate(100);
      ASSERT_TRUE(second.ok()) << second.status();
      pool.Free(*second);
    }
  });
}

TEST(PoolConcurrencyTest, AWholeWaitsForMemoryOnItsWayBack) { MemoryOnItsWayBackIsWaitedFor(true); }

TEST(PoolConcurrencyTest, ABlockWaitsForMemoryOnItsWayBack) {
  MemoryOnItsWayBackIsWaitedFor(false);
}

TEST(PoolConcurrencyTest, WhatFitsTheDeviceIsNeverRefused) {
  // Each thread holds one allocation at a time and the device has room for them.
  SimulatedUpstream upstream({.limit_bytes = kThreads * 2 * kChunk});
  Pool pool(upstream.upstream(), {.chunk_bytes = kChunk});
  InThreads(kThreads, [&](int index) {
    for (int step = 0; step < 1000; ++step) {
      if ((step + index) % 2 == 0) {
        const auto block = pool.Allocate(2 * kChunk);
        ASSERT_TRUE(block.ok()) << block.status();
        pool.Free(*block);
      } else {
        const auto whole = pool.AllocateWhole(2 * kChunk);
        ASSERT_TRUE(whole.ok()) << whole.status();
        pool.FreeWhole(whole->id);
      }
    }
  });
  EXPECT_EQ(pool.stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace tetrad
