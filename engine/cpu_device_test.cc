// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract suite over the CPU device, and what only the CPU device promises.
#include "engine/cpu_device.h"

#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/device_contract.h"

namespace tetrad {
namespace {

absl::StatusOr<std::unique_ptr<Device>> MakeCpu(int threads, const ContractOptions& options,
                                                std::function<void()> wake) {
  return CpuDevice::Create({.threads = threads,
                            .memory_bytes = options.memory_bytes,
                            .max_in_flight = options.max_in_flight,
                            .measure_rates = false},
                           std::move(wake));
}

DeviceMaker Cpu(const char* name, int threads) {
  return {name, [threads](const ContractOptions& options, std::function<void()> wake) {
            return MakeCpu(threads, options, std::move(wake));
          }};
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceContract,
                         ::testing::Values(Cpu("OneThread", 1), Cpu("ThreeThreads", 3)),
                         MakerName());

class CpuDeviceTest : public ::testing::Test {
 protected:
  CpuDeviceTest() { Create(); }
  void Create() {
    device_ =
        *CpuDevice::Create({.threads = 1, .memory_bytes = 1 << 20, .measure_rates = false}, [] {});
  }
  Allocation Allocate(int64_t bytes) { return *device_->Allocate(bytes); }

  std::unique_ptr<CpuDevice> device_;
};

TEST_F(CpuDeviceTest, OptionsThatCannotWorkAreRefused) {
  for (const int32_t max_in_flight : {0, -1, INT32_MIN}) {
    const auto refused =
        CpuDevice::Create({.max_in_flight = max_in_flight, .measure_rates = false}, [] {});
    ASSERT_TRUE(absl::IsInvalidArgument(refused.status()));
    EXPECT_EQ(refused.status().message(),
              "max_in_flight=" + std::to_string(max_in_flight) + " must be at least 1");
  }
}

TEST_F(CpuDeviceTest, AllocationsAreWholePages) {
  EXPECT_EQ(Allocate(0).bytes, ::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(Allocate(100).bytes, ::sysconf(_SC_PAGESIZE));
}

TEST_F(CpuDeviceTest, AFailedAllocationLeavesNothingBehind) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status refused = device_->Allocate(1 << 20).status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(device_->memory_use().allocated_bytes, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(device_->Allocate(INT64_MAX).status()));
  EXPECT_TRUE(device_->Allocate(1 << 20).ok());
}

TEST_F(CpuDeviceTest, TheNameIsStableAndKeepsTheMachineIdSecret) {
  const std::string uuid = device_->limits().uuid;
  Create();
  EXPECT_EQ(device_->limits().uuid, uuid);
  EXPECT_EQ(uuid.substr(0, 4), "cpu-");
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  EXPECT_TRUE(id.empty() || uuid.find(id) == std::string::npos) << uuid;
}

// Other processes included, and by any call.
TEST_F(CpuDeviceTest, ASealIsTheKernels) {
  const Allocation a = Allocate(4096);
  UniqueFd fd = *device_->Export(a.id);
  EXPECT_LT(::ftruncate(fd.get(), 0), 0) << "the size is sealed from the start";
  ASSERT_TRUE(device_->Seal(a.id).ok());
  const std::byte value{0x77};
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_LT(::write(fd.get(), &value, 1), 0);
}

TEST_F(CpuDeviceTest, ImportRefusesWhatCouldShrink) {
  UniqueFd plain(::memfd_create("plain", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(plain.get(), 4096), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(
      device_->Import(UniqueFd(::dup(plain.get())), {}, 4096, true).status()));
  ASSERT_EQ(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(device_->Import(std::move(plain), {}, 4096, true).ok());
  UniqueFd empty(::memfd_create("empty", MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Import(std::move(empty), {}, 4096, false).status()));
}

TEST_F(CpuDeviceTest, ADescriptorThatOnlyReadsIsImportedForReadingOnly) {
  const Allocation a = Allocate(4096);
  const UniqueFd fd = *device_->Export(a.id);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const auto import = [&](bool writable) {
    UniqueFd reading(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return device_->Import(std::move(reading), a.identity, a.bytes, writable);
  };
  const MemoryUse before = device_->memory_use();
  EXPECT_TRUE(absl::IsFailedPrecondition(import(true).status()));
  EXPECT_EQ(device_->memory_use().allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(device_->memory_use().allocations, before.allocations);
  const auto reader = import(false);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Seal(reader->id))) << "it may not seal either";
  ASSERT_TRUE(device_->Seal(a.id).ok());
  EXPECT_TRUE(device_->Seal(reader->id).ok());
}

}  // namespace
}  // namespace tetrad
