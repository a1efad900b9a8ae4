// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_source.h"

#include <atomic>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"

namespace tetrad {
namespace {

class PlanCacheTest : public ::testing::Test {
 protected:
  PlanCacheTest()
      : device_(*CpuDevice::Create({.threads = 1, .memory_bytes = 1 << 20, .measure_rates = false},
                                   [] {})),
        pool_(Pool::From(*device_), {.chunk_bytes = 1 << 16}),
        budget_(1 << 20) {}

  static Signature Of(int32_t m) {
    Signature s;
    s.groups = {{m, 32, 32}};
    return s;
  }
  absl::StatusOr<std::shared_ptr<PlanEntry>> Build(const Signature& s) {
    ++builds_;
    auto plan = BuildPlan(s, device_->limits());
    if (!plan.ok()) return plan.status();
    return std::make_shared<PlanEntry>(*device_, pool_, budget_, *std::move(plan));
  }

  std::unique_ptr<CpuDevice> device_;
  Pool pool_;
  ByteBudget budget_;
  std::atomic<int> builds_{0};
};

TEST_F(PlanCacheTest, BuildsOnceAndEvictsLeastRecentlyUsed) {
  PlanSource cache({.plans = 2}, [this](const Signature& s) { return Build(s); });
  const auto one = cache.Get(PlanKey(Of(1)));
  EXPECT_FALSE(one->cached);
  EXPECT_FALSE(cache.Get(PlanKey(Of(2)))->cached);
  EXPECT_TRUE(cache.Get(PlanKey(Of(1)))->cached);
  EXPECT_FALSE(cache.Get(PlanKey(Of(3)))->cached);  // evicts 2
  EXPECT_TRUE(cache.Get(PlanKey(Of(1)))->cached);
  EXPECT_FALSE(cache.Get(PlanKey(Of(2)))->cached);
  EXPECT_EQ(builds_, 4);
  const PlanCache::Stats stats = cache.cache().stats();
  EXPECT_EQ(stats.size, 2);
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.misses, 4);
  EXPECT_EQ(stats.evictions, 2);
  EXPECT_EQ(one->entry->plan().signature, Of(1));  // held plans outlive eviction
}

// What a plan holds in host memory is the client's choice.
TEST_F(PlanCacheTest, EvictsByHostBytes) {
  const int64_t one = (*Build(Of(1)))->plan().host_bytes();
  PlanSource cache({.plans = 100, .host_bytes = 3 * one},
                   [this](const Signature& s) { return Build(s); });
  for (const int32_t m : {1, 2, 3}) EXPECT_FALSE(cache.Get(PlanKey(Of(m)))->cached);
  EXPECT_EQ(cache.cache().stats().size, 3);
  const auto large =
      cache.Get(PlanKey(Of(100 * 256)));  // alone above the limit: kept, everything else goes
  ASSERT_GT(large->entry->plan().host_bytes(), 3 * one / 2);
  EXPECT_LT(cache.cache().stats().size, 3);
  EXPECT_TRUE(cache.Get(PlanKey(Of(100 * 256)))->cached);
  for (const int32_t m : {1, 2, 3}) EXPECT_TRUE(cache.Get(PlanKey(Of(m))).ok());
  EXPECT_EQ(cache.cache().stats().size, 3);  // its bytes were given back
}

TEST_F(PlanCacheTest, TilesAreBounded) {
  const TileTraits& tile = device_->limits().kernels.front().tile;
  Signature s = Of(tile.max_rows);
  s.groups.assign(2, {tile.max_rows * (1 << 20), 1, 32});  // 2^20 tiles each
  s.groups[1].m = 0;
  if (const auto plan = BuildPlan(s, device_->limits()); !plan.ok()) FAIL() << plan.status();
  s.groups[1].m = 1;
  const absl::Status refused = BuildPlan(s, device_->limits()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("group 1: m=1"), std::string::npos) << refused;
}

TEST_F(PlanCacheTest, SecondCallerWaitsForFirst) {
  std::latch building(1), go(1);
  PlanSource cache({.plans = 4}, [&](const Signature& s) {
    building.count_down();
    go.wait();
    return Build(s);
  });
  std::vector<std::shared_ptr<PlanEntry>> got(4);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { got[0] = cache.Get(PlanKey(Of(1)))->entry; });
  building.wait();
  for (int i = 1; i < 4; ++i) {
    threads.emplace_back([&, i] { got[i] = cache.Get(PlanKey(Of(1)))->entry; });
  }
  go.count_down();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builds_, 1);
  for (const auto& entry : got) EXPECT_EQ(entry, got[0]);
}

TEST_F(PlanCacheTest, FailureReachesEveryWaiterAndIsForgotten) {
  std::latch building(1), go(1);
  std::atomic<bool> fail{true};
  PlanSource cache({.plans = 4},
                   [&](const Signature& s) -> absl::StatusOr<std::shared_ptr<PlanEntry>> {
                     if (!fail) return Build(s);
                     building.count_down();
                     go.wait();
                     return absl::ResourceExhaustedError("no memory");
                   });
  absl::Status statuses[3];
  std::thread first([&] { statuses[0] = cache.Get(PlanKey(Of(1))).status(); });
  building.wait();
  std::thread second([&] { statuses[1] = cache.Get(PlanKey(Of(1))).status(); });
  std::thread third([&] { statuses[2] = cache.Get(PlanKey(Of(1))).status(); });
  while (cache.cache().stats().hits < 2) std::this_thread::yield();  // both wait
  fail = false;
  go.count_down();
  first.join();
  second.join();
  third.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_TRUE(cache.Get(PlanKey(Of(1))).ok());
}

TEST_F(PlanCacheTest, AThrowingBuilderIsAFailureLikeAnyOther) {
  bool throws = true;
  PlanSource cache({.plans = 4}, [&](const Signature& s) {
    if (throws) throw std::bad_alloc();
    return Build(s);
  });
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Get(PlanKey(Of(1))).status()));
  throws = false;
  EXPECT_TRUE(cache.Get(PlanKey(Of(1))).ok());
}

// Full-key equality under many threads, with evictions all the time.
TEST_F(PlanCacheTest, NeverReturnsAnotherSignaturesPlan) {
  PlanSource cache({.plans = 3}, [this](const Signature& s) { return Build(s); });
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const Signature s = Of(1 + (i * 7 + t) % 9);
        const auto found = cache.Get(PlanKey(s));
        if (!found.ok() || !(found->entry->plan().signature == s)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(cache.cache().stats().size, 3);
}

}  // namespace
}  // namespace tetrad
