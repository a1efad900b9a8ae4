// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of a device's memory: sizes, accounting, ids, ranges, copies.
#include <atomic>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST_P(DeviceContract, LimitsAreSane) {
  Make({.memory_bytes = 42 << 20, .max_in_flight = 5});
  const DeviceLimits& limits = device().limits();
  EXPECT_FALSE(limits.uuid.empty());
  EXPECT_FALSE(limits.name.empty());
  EXPECT_FALSE(limits.capability.empty());
  EXPECT_GE(limits.ctas, 1);
  EXPECT_GE(limits.lanes, 1);
  EXPECT_EQ(limits.max_in_flight, 5);
  EXPECT_EQ(limits.memory_bytes, 42 << 20);
  ASSERT_FALSE(limits.kernels.empty());
  for (const KernelTraits& kernel : limits.kernels) {
    EXPECT_FALSE(kernel.name.empty());
    EXPECT_GE(kernel.tile.max_rows, 1);
    EXPECT_GE(kernel.tile.max_columns, 1);
  }
  EXPECT_TRUE(device().health().ok());
  const MemoryUse use = device().memory_use();
  EXPECT_EQ(use.limit_bytes, 42 << 20);
  EXPECT_EQ(use.allocated_bytes, 0);
  EXPECT_EQ(use.allocations, 0);
}

TEST_P(DeviceContract, MemoryIsZeroedRoundedUpAndAccountedFor) {
  const int64_t granule = Granule();
  int64_t bytes = 0, count = 0;
  for (const auto& [wanted, got] : {std::pair<int64_t, int64_t>{1, granule},
                                    {granule - 1, granule},
                                    {granule, granule},
                                    {granule + 1, 2 * granule},
                                    {3 * granule, 3 * granule}}) {
    const Allocation a = Allocate(wanted);
    EXPECT_EQ(a.bytes, got) << wanted;
    bytes += a.bytes;
    ++count;
    EXPECT_EQ(device().memory_use().allocated_bytes, bytes);
    EXPECT_EQ(device().memory_use().allocations, count);
    const size_t size = static_cast<size_t>(a.bytes);
    EXPECT_EQ(Read(a.id, 0, size), std::vector<std::byte>(size));
    const std::vector<std::byte> junk(size, std::byte{0xA5});
    ASSERT_TRUE(device().Write(a.id, 0, junk).ok());
  }
}

TEST_P(DeviceContract, MemoryThatComesBackIsZeroed) {
  const int64_t granule = Granule();
  for (int round = 0; round < 20; ++round) {
    const Allocation a = Allocate(4 * granule);
    const size_t size = static_cast<size_t>(a.bytes);
    ASSERT_EQ(Read(a.id, 0, size), std::vector<std::byte>(size)) << "round " << round;
    const std::vector<std::byte> junk(size, std::byte{0xA5});
    ASSERT_TRUE(device().Write(a.id, 0, junk).ok());
    ASSERT_TRUE(device().Free(a.id).ok());
  }
}

TEST_P(DeviceContract, TheLimitIsExactAndItsRefusalNamesTheBytes) {
  const int64_t granule = Granule();
  const int64_t limit = 8 * granule;
  Make({.memory_bytes = limit});
  const Allocation a = Allocate(granule);
  const absl::Status refused = device().Allocate(limit - granule + 1).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat(limit, " bytes wanted")));
  EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat(limit - granule, " of ", limit, " left")));
  EXPECT_EQ(device().memory_use().allocated_bytes, granule) << "a refusal takes nothing";
  EXPECT_EQ(device().memory_use().allocations, 1);
  const Allocation rest = Allocate(limit - granule);
  EXPECT_EQ(device().Allocate(1).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(device().Free(a.id).ok());
  EXPECT_EQ(device().memory_use().allocated_bytes, limit - granule);
  EXPECT_TRUE(device().Allocate(granule).ok());
  EXPECT_TRUE(device().Free(rest.id).ok());
}

TEST_P(DeviceContract, SizesThatCannotBeAreRefused) {
  for (const int64_t bytes : {int64_t{-1}, INT64_MIN}) {
    const absl::Status refused = device().Allocate(bytes).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << bytes;
    EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat(bytes)));
  }
  for (const int64_t bytes : {INT64_MAX, INT64_MAX - 1, INT64_MAX - 4095, int64_t{1} << 62}) {
    EXPECT_EQ(device().Allocate(bytes).status().code(), Code::kResourceExhausted) << bytes;
  }
  EXPECT_EQ(device().memory_use().allocated_bytes, 0);
  EXPECT_EQ(device().memory_use().allocations, 0);
}

TEST_P(DeviceContract, AStaleAllocationIsRefusedByEveryCall) {
  DeviceSample sample(device(), {{3, 32, 64}});
  const BindingId binding = Bind(sample);
  const Allocation gone = Allocate(1);
  ASSERT_TRUE(device().Free(gone.id).ok());
  const Allocation next = Allocate(1);  // may well sit where `gone` was
  const auto never = static_cast<AllocationId>(~uint64_t{0});
  for (const AllocationId id : {gone.id, AllocationId::kNone, never}) {
    SCOPED_TRACE(static_cast<uint64_t>(id));
    std::byte byte{};
    EXPECT_EQ(device().Free(id).code(), Code::kAborted);
    EXPECT_EQ(device().Seal(id).code(), Code::kAborted);
    EXPECT_EQ(device().Export(id).status().code(), Code::kAborted);
    EXPECT_EQ(device().Write(id, 0, {&byte, 1}).code(), Code::kAborted);
    EXPECT_EQ(device().Write(id, 0, {}).code(), Code::kAborted);
    EXPECT_EQ(device().Read(id, 0, {&byte, 1}).code(), Code::kAborted);
    EXPECT_EQ(device().Clear(id, 0, 1).code(), Code::kAborted);
    for (const DeviceSample::NamedOperand& operand : sample.operands()) {
      OperandBlocks blocks = sample.blocks();
      (blocks.*operand.block).allocation = id;
      const absl::Status refused = device().Bind(sample.plan(), blocks).status();
      EXPECT_EQ(refused.code(), Code::kAborted) << refused;
      EXPECT_THAT(Text(refused), HasSubstr(operand.name));
      EXPECT_EQ(device().Rebind(binding, blocks).code(), Code::kAborted);
    }
  }
  EXPECT_EQ(Read(next.id, 0, 1)[0], std::byte{0});
  EXPECT_TRUE(device().Free(next.id).ok());
}

TEST_P(DeviceContract, IdsAndIdentitiesNeverRepeat) {
  std::set<AllocationId> ids;
  std::set<std::array<uint8_t, 16>> uuids;
  AllocationIdentity first;
  Make({.memory_bytes = 101 * Granule()});
  for (int i = 0; i < 1000; ++i) {
    const Allocation a = Allocate(1);
    if (i == 0) first = a.identity;
    EXPECT_TRUE(ids.insert(a.id).second) << i;
    EXPECT_TRUE(uuids.insert(a.identity.uuid).second) << i;
    EXPECT_EQ(a.identity.boot_id, first.boot_id);
    EXPECT_EQ(a.identity.generation, first.generation);
    if (i % 10 != 0) {
      ASSERT_TRUE(device().Free(a.id).ok());
    }
  }
}

TEST_P(DeviceContract, RangesAreCheckedAtEveryEdgeWithoutOverflow) {
  const Allocation a = Allocate(1);
  const int64_t size = a.bytes;
  std::vector<std::byte> data(static_cast<size_t>(size) + 2);
  const struct {
    int64_t offset, bytes;
    bool legal;
  } ranges[] = {{0, 0, true},          {0, 1, true},          {0, size, true},
                {0, size + 1, false},  {1, size - 1, true},   {1, size, false},
                {size - 1, 1, true},   {size - 1, 2, false},  {size, 0, true},
                {size, 1, false},      {size + 1, 0, false},  {-1, 0, false},
                {-1, 1, false},        {-1, 2, false},        {-size, size, false},
                {INT64_MAX, 0, false}, {INT64_MAX, 1, false}, {INT64_MAX - 1, 2, false},
                {INT64_MIN, 0, false}, {INT64_MIN, 1, false}};
  for (const auto& [offset, bytes, legal] : ranges) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes at ", offset));
    const Code code = legal ? Code::kOk : Code::kInvalidArgument;
    const std::span<std::byte> span = std::span(data).first(static_cast<size_t>(bytes));
    EXPECT_EQ(device().Write(a.id, offset, span).code(), code);
    EXPECT_EQ(device().Read(a.id, offset, span).code(), code);
    EXPECT_EQ(device().Clear(a.id, offset, bytes).code(), code);
  }
  for (const int64_t bytes : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
    for (const int64_t offset : {int64_t{0}, int64_t{1}, size}) {
      EXPECT_EQ(device().Clear(a.id, offset, bytes).code(), Code::kInvalidArgument) << bytes;
    }
  }
  const absl::Status refused = device().Clear(a.id, 7, size);
  EXPECT_THAT(Text(refused),
              HasSubstr(absl::StrCat(size, " bytes at offset 7 exceed the allocation's ", size)));
  EXPECT_TRUE(device().Free(a.id).ok()) << "a refused call holds nothing";
}

TEST_P(DeviceContract, WriteAndClearTouchTheirRangeOnly) {
  const Allocation a = Allocate(1), beside = Allocate(1);
  std::vector<std::byte> expected(static_cast<size_t>(a.bytes));
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = std::byte(i * 7 + 1);
  ASSERT_TRUE(device().Write(a.id, 0, expected).ok());
  EXPECT_EQ(Read(a.id, 0, expected.size()), expected);
  const std::vector<std::byte> patch(13, std::byte{0xEE});
  const size_t last = expected.size() - patch.size();
  for (const size_t offset : {size_t{0}, size_t{5}, last - 1, last}) {
    ASSERT_TRUE(device().Write(a.id, static_cast<int64_t>(offset), patch).ok());
    std::copy(patch.begin(), patch.end(), expected.begin() + static_cast<ptrdiff_t>(offset));
    EXPECT_EQ(Read(a.id, 0, expected.size()), expected) << "written at " << offset;
    ASSERT_TRUE(device().Clear(a.id, static_cast<int64_t>(offset) + 1, 11).ok());
    std::fill_n(expected.begin() + static_cast<ptrdiff_t>(offset) + 1, 11, std::byte{0});
    EXPECT_EQ(Read(a.id, 0, expected.size()), expected) << "cleared after " << offset;
  }
  EXPECT_EQ(Read(a.id, static_cast<int64_t>(last), patch.size()),
            std::vector<std::byte>(expected.end() - 13, expected.end()));
  EXPECT_EQ(Read(beside.id, 0, static_cast<size_t>(beside.bytes)),
            std::vector<std::byte>(static_cast<size_t>(beside.bytes)));
  EXPECT_TRUE(device().Free(a.id).ok()) << "a copy that is over holds nothing";
  EXPECT_TRUE(device().Free(beside.id).ok());
}

// A copy may be under way in another thread: refused then, never pulled away
// from under it.
TEST_P(DeviceContract, MemoryBeingCopiedIsNotFreed) {
  for (const bool write : {false, true}) {
    std::atomic<AllocationId> shared{Allocate(2 << 20).id};
    std::atomic<int64_t> copies{0};
    std::atomic<bool> stop{false};
    std::thread copier([&] {
      std::vector<std::byte> data(2 << 20);
      while (!stop) {
        const AllocationId id = shared;
        const absl::Status status =
            write ? device().Write(id, 0, data) : device().Read(id, 0, data);
        EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
        copies += status.ok();
      }
    });
    int64_t seen = 0;
    EXPECT_TRUE(Eventually([&] {
      // Not before the copier copies this memory, on which it then spends nearly all
      // its time, running or not. Before, it holds nothing, and may not get a
      // processor for long.
      if (copies == seen) {
        std::this_thread::yield();
        return false;
      }
      const absl::Status status = device().Free(shared);
      if (status.ok()) {
        shared = Allocate(2 << 20).id;
        seen = copies;
      }
      EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
      return absl::IsFailedPrecondition(status);
    }));
    stop = true;
    copier.join();
    EXPECT_TRUE(device().Free(shared).ok()) << "the copy's hold ends with it";
  }
  EXPECT_EQ(device().memory_use().allocated_bytes, 0);
}

TEST_P(DeviceContract, ManyThreadsAllocateWithinTheLimit) {
  const int64_t granule = Granule();
  Make({.memory_bytes = 6 * granule});
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto a = device().Allocate(2 * granule);
        if (!a.ok()) {
          EXPECT_EQ(a.status().code(), Code::kResourceExhausted);
          ++refused;
          continue;
        }
        const std::byte mark{static_cast<uint8_t>(t + 1)};
        std::byte seen{};
        EXPECT_TRUE(device().Read(a->id, granule, {&seen, 1}).ok());
        EXPECT_EQ(seen, std::byte{0});
        EXPECT_TRUE(device().Write(a->id, granule, {&mark, 1}).ok());
        EXPECT_TRUE(device().Read(a->id, granule, {&seen, 1}).ok());
        EXPECT_EQ(seen, mark);
        EXPECT_LE(device().memory_use().allocated_bytes, 6 * granule);
        EXPECT_TRUE(device().Free(a->id).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(refused, 800);
  EXPECT_EQ(device().memory_use().allocated_bytes, 0);
  EXPECT_EQ(device().memory_use().allocations, 0);
}

TEST_P(DeviceContract, FillAsksForEveryByteOnceAndInOrder) {
  constexpr int64_t kBytes = (9 << 20) + 13, kOffset = 3;
  const Allocation a = Allocate(kBytes + 16);
  int64_t asked = 0;
  const absl::Status filled = device().Fill(a.id, kOffset, kBytes, [&](std::span<std::byte> out) {
    for (std::byte& byte : out) byte = static_cast<std::byte>(asked++ * 31 >> 3);
    return absl::OkStatus();
  });
  ASSERT_TRUE(filled.ok()) << filled;
  EXPECT_EQ(asked, kBytes);
  const std::vector<std::byte> data = Read(a.id, 0, kBytes + 16);
  for (int64_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(data[static_cast<size_t>(kOffset + i)], static_cast<std::byte>(i * 31 >> 3)) << i;
  }
  for (const int64_t i : {0, 1, 2}) EXPECT_EQ(data[static_cast<size_t>(i)], std::byte{0});
  for (int64_t i = kOffset + kBytes; i < kBytes + 16; ++i) {
    EXPECT_EQ(data[static_cast<size_t>(i)], std::byte{0}) << i;
  }
}

TEST_P(DeviceContract, FillChecksItsRangeAndReturnsItsSourcesError) {
  const Allocation a = Allocate(100);
  int calls = 0;
  const auto count = [&](std::span<std::byte>) {
    ++calls;
    return absl::OkStatus();
  };
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{-1, 1},
                                      {0, -1},
                                      {a.bytes, 1},
                                      {0, a.bytes + 1},
                                      {1, INT64_MAX}}) {
    EXPECT_EQ(device().Fill(a.id, offset, bytes, count).code(), Code::kInvalidArgument)
        << offset << " " << bytes;
  }
  EXPECT_EQ(device().Fill(AllocationId::kNone, 0, 1, count).code(), Code::kAborted);
  ASSERT_TRUE(device().Fill(a.id, a.bytes, 0, count).ok());
  EXPECT_EQ(calls, 0);
  const absl::Status failed = device().Fill(
      a.id, 0, 50, [](std::span<std::byte>) { return absl::DataLossError("no such luck"); });
  EXPECT_EQ(failed, absl::DataLossError("no such luck"));
  ASSERT_TRUE(device().Seal(a.id).ok()) << "nothing writes it any more";
  EXPECT_EQ(device().Fill(a.id, 0, 1, count).code(), Code::kFailedPrecondition);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(device().Free(a.id).ok());
}

}  // namespace
}  // namespace tetrad
