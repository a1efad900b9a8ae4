// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of sealed, exported and imported memory.
#include <atomic>
#include <thread>

#include <fcntl.h>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST_P(DeviceContract, SealedMemoryIsReadOnly) {
  const Allocation a = Allocate(1);
  ASSERT_TRUE(WriteByte(a.id, 9, 0x77).ok());
  for (int times = 0; times < 2; ++times) {
    const absl::Status status = device().Seal(a.id);
    ASSERT_TRUE(status.ok()) << status << " at seal " << times;
    EXPECT_EQ(WriteByte(a.id, 9, 1).code(), Code::kFailedPrecondition);
    EXPECT_EQ(device().Clear(a.id, 0, a.bytes).code(), Code::kFailedPrecondition);
    EXPECT_EQ(Read(a.id, 9, 1)[0], std::byte{0x77});
  }
  EXPECT_TRUE(device().Free(a.id).ok());
}

TEST_P(DeviceContract, SealedMemoryIsAnInputButNoOutput) {
  DeviceSample sample(device(), {{5, 48, 64}});
  for (const DeviceSample::NamedOperand& operand : sample.operands()) {
    if (operand.block == &OperandBlocks::c) continue;
    ASSERT_TRUE(device().Seal((sample.blocks().*operand.block).allocation).ok());
  }
  const BindingId binding = Bind(sample);
  EXPECT_EQ(RunOnce(binding).code, Code::kOk);
  EXPECT_TRUE(sample.Correct());
  ASSERT_TRUE(device().Unbind(binding).ok());
  ASSERT_TRUE(device().Seal(sample.blocks().c.allocation).ok());
  const absl::Status refused = device().Bind(sample.plan(), sample.blocks()).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
  EXPECT_THAT(Text(refused), HasSubstr("output: "));
  EXPECT_TRUE(sample.FreeAll());
}

// Otherwise a launch or copy under way would write to what became read-only.
TEST_P(DeviceContract, MemoryThatIsWrittenIsNotSealed) {
  DeviceSample sample(device(), {{5, 48, 64}});
  const BindingId binding = Bind(sample);
  EXPECT_EQ(device().Seal(sample.blocks().c.allocation).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(device().Seal(sample.blocks().b.allocation).ok()) << "an input is only read";
  EXPECT_EQ(RunOnce(binding).code, Code::kOk);
  EXPECT_TRUE(sample.Correct());
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(device().Seal(sample.blocks().c.allocation).ok());

  std::atomic<AllocationId> shared{Allocate(2 << 20).id};
  std::atomic<int64_t> copies{0};
  std::atomic<bool> stop{false};
  std::thread copier([&] {
    const std::vector<std::byte> data(2 << 20);
    while (!stop) {
      const absl::Status status = device().Write(shared, 0, data);
      EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status) || absl::IsAborted(status))
          << status;
      copies += status.ok();
    }
  });
  int64_t seen = 0;
  EXPECT_TRUE(Eventually([&] {
    // Not before the copier writes this memory, see MemoryBeingCopiedIsNotFreed.
    if (copies == seen) {
      std::this_thread::yield();
      return false;
    }
    const absl::Status status = device().Seal(shared);
    if (!status.ok()) return absl::IsFailedPrecondition(status);
    const AllocationId sealed = shared;
    shared = Allocate(2 << 20).id;
    seen = copies;
    while (!device().Free(sealed).ok()) std::this_thread::yield();
    return false;
  }));
  stop = true;
  copier.join();
}

TEST_P(DeviceContract, ExportedMemoryIsTheSameMemory) {
  const Allocation a = Allocate(1);
  ASSERT_TRUE(WriteByte(a.id, 3, 0x33).ok());
  auto fd = device().Export(a.id);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const auto twin = device().Import(*std::move(fd), a.identity, a.bytes, /*writable=*/true);
  ASSERT_TRUE(twin.ok()) << twin.status();
  EXPECT_NE(twin->id, a.id);
  EXPECT_TRUE(twin->identity == a.identity);
  EXPECT_EQ(twin->bytes, a.bytes);
  EXPECT_EQ(device().memory_use().allocations, 2);
  EXPECT_EQ(device().memory_use().allocated_bytes, a.bytes + twin->bytes);
  EXPECT_EQ(Read(twin->id, 3, 1)[0], std::byte{0x33});
  ASSERT_TRUE(WriteByte(twin->id, 9, 0x77).ok());
  EXPECT_EQ(Read(a.id, 9, 1)[0], std::byte{0x77});
  ASSERT_TRUE(WriteByte(a.id, 10, 0x88).ok());

  ASSERT_TRUE(device().Free(a.id).ok());
  EXPECT_EQ(Read(twin->id, 10, 1)[0], std::byte{0x88}) << "it outlives its exporter's hold";
  EXPECT_EQ(device().Export(a.id).status().code(), Code::kAborted);
  ASSERT_TRUE(device().Free(twin->id).ok());
  EXPECT_EQ(device().memory_use().allocated_bytes, 0);
  EXPECT_EQ(device().memory_use().allocations, 0);
}

TEST_P(DeviceContract, AnotherDeviceImportsWhatIsExported) {
  const Allocation a = Allocate(1);
  ASSERT_TRUE(WriteByte(a.id, 0, 0x42).ok());
  UniqueFd fd = *device().Export(a.id);
  const auto other = *GetParam().make({}, [] {});
  const auto twin = other->Import(std::move(fd), a.identity, a.bytes, /*writable=*/true);
  ASSERT_TRUE(twin.ok()) << twin.status();
  device_.reset();  // the exporter is gone, its memory is not
  std::byte byte{};
  ASSERT_TRUE(other->Read(twin->id, 0, {&byte, 1}).ok());
  EXPECT_EQ(byte, std::byte{0x42});
}

TEST_P(DeviceContract, ASealHoldsForLaterMappings) {
  const Allocation a = Allocate(1);
  ASSERT_TRUE(WriteByte(a.id, 9, 0x77).ok());
  UniqueFd before = *device().Export(a.id);
  ASSERT_TRUE(device().Seal(a.id).ok());
  UniqueFd after = *device().Export(a.id);
  for (UniqueFd* fd : {&before, &after}) {
    UniqueFd copy(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
    EXPECT_EQ(
        device().Import(std::move(copy), a.identity, a.bytes, /*writable=*/true).status().code(),
        Code::kFailedPrecondition);
    const auto reader = device().Import(std::move(*fd), a.identity, a.bytes, /*writable=*/false);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(Read(reader->id, 9, 1)[0], std::byte{0x77});
    EXPECT_EQ(WriteByte(reader->id, 9, 1).code(), Code::kFailedPrecondition);
    EXPECT_TRUE(device().Seal(reader->id).ok());
    EXPECT_TRUE(device().Free(reader->id).ok());
  }
  EXPECT_EQ(device().memory_use().allocations, 1) << "a refused import leaves nothing";
  EXPECT_EQ(device().memory_use().allocated_bytes, a.bytes);
}

TEST_P(DeviceContract, EveryMappingCanBeSealed) {
  const Allocation a = Allocate(1);
  const Allocation writer = *device().Import(*device().Export(a.id), a.identity, a.bytes, true);
  const Allocation reader = *device().Import(*device().Export(a.id), a.identity, a.bytes, false);
  EXPECT_EQ(WriteByte(reader.id, 0, 1).code(), Code::kFailedPrecondition);
  // From a mapping that could not write anyway, and then from those that can.
  ASSERT_TRUE(device().Seal(reader.id).ok());
  EXPECT_EQ(device().Import(*device().Export(a.id), a.identity, a.bytes, true).status().code(),
            Code::kFailedPrecondition);
  for (const AllocationId id : {a.id, writer.id}) {
    const absl::Status status = device().Seal(id);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(WriteByte(id, 0, 1).code(), Code::kFailedPrecondition);
  }
}

TEST_P(DeviceContract, ARefusedImportLeavesNothing) {
  const int64_t granule = Granule();
  Make({.memory_bytes = 3 * granule});
  const Allocation a = Allocate(2 * granule);
  UniqueFd fd = *device().Export(a.id);
  const int number = fd.get();
  const absl::Status refused = device().Import(std::move(fd), a.identity, a.bytes, false).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << "imported memory counts";
  EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat(2 * granule, " bytes wanted")));
  EXPECT_LT(::fcntl(number, F_GETFD), 0) << "the descriptor was given away and is closed";
  EXPECT_EQ(device().Import(UniqueFd(), a.identity, a.bytes, false).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      device()
          .Import(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), a.identity, a.bytes, false)
          .status()
          .code(),
      Code::kInvalidArgument);
  EXPECT_EQ(device().memory_use().allocations, 1);
  EXPECT_EQ(device().memory_use().allocated_bytes, a.bytes);
}

// A descriptor need not tell its size, so what is said of it is checked.
TEST_P(DeviceContract, AnImportOfAnotherSizeIsRefused) {
  const int64_t granule = Granule();
  const Allocation a = Allocate(2 * granule);
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, granule - 1, a.bytes + granule, INT64_MIN}) {
    EXPECT_EQ(device().Import(*device().Export(a.id), a.identity, bytes, true).status().code(),
              Code::kInvalidArgument)
        << bytes;
  }
  EXPECT_EQ(device().memory_use().allocated_bytes, a.bytes);
  EXPECT_EQ(device().memory_use().allocations, 1);
}

TEST_P(DeviceContract, ImportedMemoryIsBound) {
  DeviceSample sample(device(), {{5, 48, 64}});
  OperandBlocks blocks = sample.blocks();
  for (const DeviceSample::NamedOperand& operand : sample.operands()) {
    BlockRef& block = blocks.*operand.block;
    UniqueFd fd = *device().Export(block.allocation);
    const int64_t bytes = sample.allocation(block.allocation).bytes;
    block.allocation =
        device().Import(std::move(fd), {}, bytes, operand.block == &OperandBlocks::c)->id;
  }
  const BindingId binding = *device().Bind(sample.plan(), blocks);
  EXPECT_EQ(RunOnce(binding).code, Code::kOk);
  EXPECT_TRUE(sample.Correct()) << "seen through the exporter's mapping";
  EXPECT_EQ(device().Free(blocks.b.allocation).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(sample.FreeAll()) << "the exporter's ids are not what is bound";
}

}  // namespace
}  // namespace tetrad
