// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pool.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/cpu_device.h"
#include "engine/pool_fixture.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using Call = SimulatedUpstream::Call;
using PoolTest = PoolFixture;

TEST_F(PoolTest, BlocksShareAChunkAndAreCountedRoundedUp) {
  const BlockRef a = Allocate(1);
  const BlockRef b = Allocate(257);
  EXPECT_EQ(a.allocation, b.allocation);
  EXPECT_EQ(a.bytes, 1);
  EXPECT_EQ(b.bytes, 257);
  EXPECT_EQ(b.offset, 256);
  const Pool::Stats stats = pool_->stats();
  EXPECT_EQ(stats.block_bytes, 768);
  EXPECT_EQ(stats.free_bytes, kChunk - 768);
  EXPECT_EQ(stats.largest_free_bytes, kChunk - 768);
  EXPECT_EQ(stats.blocks, 2);
  EXPECT_EQ(stats.chunks, 1);
  pool_->Free(a);
  pool_->Free(b);
  ExpectEmptyAfterTrim();
  EXPECT_EQ(pool_->stats().allocations, 2);
  EXPECT_EQ(pool_->stats().frees, 2);
}

TEST_F(PoolTest, AboveHalfAChunkABlockHasItsOwnWhichGoesBackWithIt) {
  const BlockRef half = Allocate(kChunk / 2);
  const BlockRef large = Allocate(kChunk / 2 + 1);
  const BlockRef huge = Allocate(5 * kChunk + 1);
  EXPECT_EQ(pool_->stats().chunks, 3);
  EXPECT_EQ(pool_->stats().reserved_bytes, kChunk + kChunk / 2 + kPage + 5 * kChunk + kPage);
  EXPECT_EQ(pool_->stats().free_bytes, kChunk / 2);
  ExpectBalanced();
  pool_->Free(large);
  pool_->Free(huge);
  EXPECT_EQ(upstream_->stats().bytes, kChunk);
  pool_->Free(half);
  EXPECT_EQ(upstream_->stats().clear_calls, 0);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, KeepsOneEmptyChunk) {
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(Allocate(kChunk / 2));
  EXPECT_EQ(pool_->stats().chunks, 3);
  for (const BlockRef& block : blocks) pool_->Free(block);
  EXPECT_EQ(pool_->stats().chunks, 1);
  EXPECT_EQ(pool_->stats().free_bytes, kChunk);
  for (int i = 0; i < 10; ++i) pool_->Free(Allocate(100));
  EXPECT_EQ(upstream_->stats().allocate_calls, 3);
  EXPECT_EQ(upstream_->stats().free_calls, 2);
  EXPECT_EQ(pool_->Trim(), kChunk);
  EXPECT_EQ(pool_->Trim(), 0);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, ClearsExactlyWhatWasUsedBefore) {
  const BlockRef a = Allocate(1024);
  const BlockRef b = Allocate(1024);
  const BlockRef c = Allocate(512);
  EXPECT_EQ(upstream_->stats().clear_calls, 0);
  for (const BlockRef& block : {a, b, c}) Fill(block, 0x77);
  pool_->Free(b);
  const BlockRef again = Allocate(768);
  EXPECT_EQ(again.offset, b.offset);
  EXPECT_TRUE(Holds(again, 0));
  EXPECT_EQ(upstream_->stats().cleared_bytes, 768);
  EXPECT_TRUE(Holds(a, 0x77));
  EXPECT_TRUE(Holds(c, 0x77));
  pool_->Free(c);
  const BlockRef beyond = Allocate(4096);  // 512 bytes of b and c each were used, the rest never
  EXPECT_EQ(beyond.offset, 1792);
  EXPECT_TRUE(Holds(beyond, 0));
  EXPECT_EQ(upstream_->stats().cleared_bytes, 768 + 256 + 512);
  for (const BlockRef& block : {a, again, beyond}) pool_->Free(block);
}

TEST_F(PoolTest, AFailedClearGivesTheBlockBack) {
  bool fail = false;
  Make({.fault = [&](Call call) {
    return fail && call == Call::kClear ? absl::InternalError("the device said no")
                                        : absl::OkStatus();
  }});
  const BlockRef keeps = Allocate(256);
  const BlockRef used = Allocate(1024);
  Fill(used, 0x77);
  pool_->Free(used);
  const Pool::Stats before = pool_->stats();
  fail = true;
  EXPECT_EQ(pool_->Allocate(1024).status(), absl::InternalError("the device said no"));
  const Pool::Stats after = pool_->stats();
  EXPECT_EQ(after.block_bytes, before.block_bytes);
  EXPECT_EQ(after.largest_free_bytes, before.largest_free_bytes);
  EXPECT_EQ(after.failures, before.failures + 1);
  fail = false;
  const BlockRef again = Allocate(1024);
  EXPECT_EQ(again.offset, used.offset);
  EXPECT_TRUE(Holds(again, 0));
  pool_->Free(again);
  pool_->Free(keeps);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, RefusalsNameFieldValueAndLimit) {
  for (const int64_t bytes : {int64_t{0}, int64_t{-5}, INT64_MIN}) {
    for (const absl::Status& status :
         {pool_->Allocate(bytes).status(), pool_->AllocateWhole(bytes).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status));
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("bytes=", bytes)));
    }
  }
  EXPECT_EQ(pool_->stats().failures, 6);
  Make({.limit_bytes = 3 * kChunk});
  const BlockRef a = Allocate(1000);
  const BlockRef b = Allocate(1000);
  const BlockRef c = Allocate(1000);
  pool_->Free(b);
  for (const int64_t bytes : {3 * kChunk, INT64_MAX}) {
    for (const absl::Status& status :
         {pool_->Allocate(bytes).status(), pool_->AllocateWhole(bytes).status()}) {
      EXPECT_TRUE(absl::IsResourceExhausted(status));
      EXPECT_EQ(std::string(status.message()),
                absl::StrCat("pool: ", bytes, " bytes wanted, ", kChunk - 2048, " of ", kChunk,
                             " held are free, the largest free range is ", kChunk - 3072,
                             "; device memory: ", bytes, " bytes wanted, ", 2 * kChunk, " of ",
                             3 * kChunk, " left"));
    }
  }
  EXPECT_EQ(pool_->stats().failures, 4);
  pool_->Free(a);
  pool_->Free(c);
}

TEST_F(PoolTest, OtherErrorsOfTheDevicePassUnchanged) {
  int relieved = 0;
  Make({.fault = [](Call) { return absl::UnavailableError("gone"); }},
       {.relieve = [&](int64_t) { return ++relieved > 0; }});
  EXPECT_EQ(pool_->Allocate(10).status(), absl::UnavailableError("gone"));
  EXPECT_EQ(pool_->Allocate(kChunk).status(), absl::UnavailableError("gone"));
  EXPECT_EQ(pool_->AllocateWhole(10).status(), absl::UnavailableError("gone"));
  EXPECT_EQ(relieved, 0);
}

TEST_F(PoolTest, UsesTheLastMemoryOfADeviceEvenIfItIsLessThanAChunk) {
  Make({.limit_bytes = 2 * kChunk - kPage});
  std::vector<BlockRef> blocks;
  absl::Status status;
  while (status.ok()) {
    const auto block = pool_->Allocate(kPage);
    status = block.status();
    if (block.ok()) blocks.push_back(*block);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  // An eighth of a chunk at a time, then what was asked for.
  EXPECT_EQ(blocks.size(), 2 * kChunk / kPage - 1);
  EXPECT_EQ(pool_->stats().free_bytes, 0);
  // The smaller chunks, now empty, are not kept.
  constexpr size_t kOfTheFirst = kChunk / kPage;
  for (size_t i = kOfTheFirst; i < blocks.size(); ++i) pool_->Free(blocks[i]);
  EXPECT_EQ(pool_->stats().reserved_bytes, kChunk);
  EXPECT_EQ(pool_->stats().free_bytes, 0);
  for (size_t i = 0; i < kOfTheFirst; ++i) pool_->Free(blocks[i]);
  EXPECT_EQ(pool_->stats().reserved_bytes, kChunk);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, TheEmptyChunkMakesRoomForOthers) {
  Make({.limit_bytes = 2 * kChunk});
  pool_->Free(Allocate(100));
  EXPECT_EQ(pool_->stats().free_bytes, kChunk);
  const auto whole = pool_->AllocateWhole(2 * kChunk);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(pool_->stats().failures, 0);
  pool_->FreeWhole(whole->id);
  pool_->Free(Allocate(100));
  const BlockRef block = Allocate(2 * kChunk);
  pool_->Free(block);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, ABlockFreedWhileTheDeviceRefusesIsUsed) {
  SimulatedUpstream simulated({.limit_bytes = kChunk});
  Pool::Upstream upstream = simulated.upstream();
  std::function<void()> on_refusal = [] {};
  upstream.allocate = [&](int64_t bytes) {
    auto allocation = simulated.Allocate(bytes);
    if (!allocation.ok()) on_refusal();
    return allocation;
  };
  Pool pool(upstream, {.chunk_bytes = kChunk});
  const auto a = pool.Allocate(kChunk / 2);
  const auto b = pool.Allocate(kChunk / 2);
  ASSERT_TRUE(a.ok() && b.ok());
  on_refusal = [&] {  // in place of another thread
    pool.Free(*a);
    on_refusal = [] {};
  };
  const auto c = pool.Allocate(kChunk / 2);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->offset, a->offset);
  pool.Free(*b);
  pool.Free(*c);
}

TEST_F(PoolTest, AsksForReliefUntilThereIsNone) {
  std::vector<BlockRef> idle;
  std::vector<int64_t> asked;
  Make({.limit_bytes = 4 * kChunk}, {.relieve = [&](int64_t bytes) {
         asked.push_back(bytes);
         if (idle.empty()) return false;
         pool_->Free(idle.back());  // no lock of the pool's is held
         idle.pop_back();
         return true;
       }});
  for (int i = 0; i < 4; ++i) idle.push_back(Allocate(kChunk));
  const BlockRef block = Allocate(2 * kChunk);
  EXPECT_EQ(asked, (std::vector<int64_t>{2 * kChunk, 2 * kChunk}));
  asked.clear();
  EXPECT_TRUE(absl::IsResourceExhausted(pool_->AllocateWhole(3 * kChunk).status()));
  EXPECT_EQ(asked.size(), 3u);
  EXPECT_TRUE(idle.empty());
  pool_->Free(block);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, AnAbandonedPoolHandsNothingOutAndCallsNobody) {
  const BlockRef block = Allocate(1000);
  const auto whole = pool_->AllocateWhole(1000);
  ASSERT_TRUE(whole.ok());
  pool_->Abandon();
  pool_->Free(block);  // its memory may still be written
  pool_->FreeWhole(whole->id);
  const int64_t allocations = upstream_->stats().allocations;
  EXPECT_TRUE(absl::IsUnavailable(pool_->Allocate(1000).status()));
  EXPECT_TRUE(absl::IsUnavailable(pool_->AllocateWhole(1000).status()));
  EXPECT_EQ(upstream_->stats().allocations, allocations);
  EXPECT_EQ(upstream_->stats().clear_calls, 0);
  pool_.reset();
  EXPECT_EQ(upstream_->stats().allocations, allocations);
}

TEST_F(PoolTest, WholesGoBackUpstreamAndNeverToAnybodyElse) {
  const auto a = pool_->AllocateWhole(100);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->bytes, kPage);
  EXPECT_EQ(pool_->stats().whole_bytes, kPage);
  EXPECT_EQ(pool_->stats().wholes, 1);
  const BlockRef block = Allocate(100);
  EXPECT_NE(block.allocation, a->id);
  pool_->FreeWhole(a->id);
  EXPECT_EQ(upstream_->stats().bytes, kChunk);
  const auto b = pool_->AllocateWhole(100);
  ASSERT_TRUE(b.ok());
  EXPECT_NE(b->id, a->id);
  pool_->FreeWhole(b->id);
  pool_->Free(block);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, WhatTheDeviceRefusesToTakeBackStaysCountedAndIsTriedAgain) {
  bool refuse = true;
  Make({.fault = [&](Call call) {
    return refuse && call == Call::kFree ? absl::FailedPreconditionError("in use")
                                         : absl::OkStatus();
  }});
  const auto whole = pool_->AllocateWhole(kPage);
  ASSERT_TRUE(whole.ok());
  pool_->Free(Allocate(kChunk));
  pool_->FreeWhole(whole->id);
  EXPECT_EQ(pool_->stats().unreturned_bytes, kChunk + kPage);
  EXPECT_EQ(pool_->stats().reserved_bytes, kChunk + kPage);
  EXPECT_EQ(pool_->Trim(), 0);
  ExpectBalanced();
  refuse = false;
  EXPECT_EQ(pool_->Trim(), kChunk + kPage);
  ExpectEmptyAfterTrim();
}

TEST_F(PoolTest, TheLogTellsWhatHappened) {
  const std::string path = ::testing::TempDir() + "/pool_test.log";
  ::unlink(path.c_str());
  auto log = AllocationLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.status();
  Make({.limit_bytes = 4 * kChunk}, {.log = log->get()});
  const BlockRef block = Allocate(100);
  const auto whole = pool_->AllocateWhole(5000);
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(pool_->Allocate(9 * kChunk).ok());
  EXPECT_FALSE(pool_->Allocate(-1).ok());  // never reached the memory, so not told
  pool_->Free(block);
  pool_->FreeWhole(whole->id);
  ASSERT_TRUE((*log)->Close().ok());
  std::FILE* const file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  ::unlink(path.c_str());
  auto trace = ParseAllocationLog(text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  using Op = AllocationEvent::Op;
  using Kind = AllocationEvent::Kind;
  std::vector<AllocationEvent> expected = {
      {0, 0, Op::kAllocate, Kind::kBlock, 1, 100},
      {0, 0, Op::kAllocate, Kind::kWhole, 2, 5000},
      {0, 0, Op::kAllocate, Kind::kBlock, 3, 9 * kChunk, absl::StatusCode::kResourceExhausted},
      {0, 0, Op::kFree, Kind::kBlock, 1, 100},
      {0, 0, Op::kFree, Kind::kWhole, 2, 5000}};
  for (AllocationEvent& event : trace->events) event.us = 0;
  EXPECT_EQ(trace->events, expected);
  pool_.reset();  // before the log
}

TEST_F(PoolTest, WorksOverADevice) {
  const auto device =
      *CpuDevice::Create({.threads = 1, .memory_bytes = 1 << 20, .measure_rates = false}, [] {});
  {
    Pool pool(Pool::From(*device), {.chunk_bytes = kChunk});
    const auto a = pool.Allocate(300);
    ASSERT_TRUE(a.ok()) << a.status();
    const std::vector<std::byte> ones(300, std::byte{1});
    ASSERT_TRUE(device->Write(a->allocation, a->offset, ones).ok());
    const auto b = pool.Allocate(300);
    ASSERT_TRUE(b.ok());
    pool.Free(*a);
    const auto c = pool.Allocate(300);
    ASSERT_TRUE(c.ok());
    EXPECT_EQ(c->offset, a->offset);
    std::vector<std::byte> read(300);
    ASSERT_TRUE(device->Read(c->allocation, c->offset, read).ok());
    EXPECT_EQ(read, std::vector<std::byte>(300));
    const auto refused = pool.AllocateWhole(1 << 20);
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
    const auto whole = pool.AllocateWhole(1 << 19);
    ASSERT_TRUE(whole.ok());
    EXPECT_TRUE(device->Export(whole->id).ok());
    pool.FreeWhole(whole->id);
    pool.Free(*b);
    pool.Free(*c);
  }
  EXPECT_EQ(device->memory_use().allocations, 0);
}

class PoolDeathTest : public PoolFixture {
 protected:
  PoolDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(PoolDeathTest, FreeingWhatIsNotHandedOutEndsTheProgram) {
  const BlockRef block = Allocate(1000);
  BlockRef wrong = block;
  wrong.bytes = 999;
  EXPECT_DEATH(pool_->Free(wrong), "check failed");
  wrong = block;
  wrong.offset = 256;
  EXPECT_DEATH(pool_->Free(wrong), "check failed");
  EXPECT_DEATH(pool_->Free({}), "check failed");
  EXPECT_DEATH(pool_->FreeWhole(block.allocation), "check failed");
  pool_->Free(block);
  EXPECT_DEATH(pool_->Free(block), "check failed");
  const auto whole = pool_->AllocateWhole(1000);
  ASSERT_TRUE(whole.ok());
  EXPECT_DEATH(pool_->Free({whole->id, 0, 1000}), "check failed");
  pool_->FreeWhole(whole->id);
  EXPECT_DEATH(pool_->FreeWhole(whole->id), "check failed");
}

TEST_F(PoolDeathTest, APoolDoesNotOutliveWhatItHandedOut) {
  const BlockRef block = Allocate(1000);
  EXPECT_DEATH(pool_.reset(), "check failed");
  pool_->Free(block);
  EXPECT_DEATH(Pool(upstream_->upstream(), {.chunk_bytes = 1000}), "check failed");
  EXPECT_DEATH(Pool({}, {}), "check failed");
}

}  // namespace
}  // namespace tetrad
