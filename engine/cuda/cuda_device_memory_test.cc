// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA device does when memory is short, that a seal and an import of
// the same memory do not pass each other by, and that memory is not given back
// before its use is over where a call failed.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "engine/cuda/simulated_device.h"

namespace tetrad::cuda {
namespace {

using Code = absl::StatusCode;

// From now on the driver has no memory but what it gave already.
void LeaveNothing(SimulatedDriver& driver) {
  driver.SetMemoryBytes(static_cast<size_t>(driver.counts().device_bytes));
}

TEST(CudaDeviceMemoryTest, IdleGraphsMakeRoomForAnAllocation) {
  SimulatedDevice simulated;
  ASSERT_TRUE(simulated.Create().ok());
  CudaDevice& device = *simulated.device;
  DeviceSample sample(device, {{5, 48, 96}});
  BindingId bindings[2];
  for (BindingId& binding : bindings) binding = *device.Bind(sample.plan(), sample.blocks());
  ASSERT_TRUE(device.Unbind(bindings[0]).ok());
  LeaveNothing(simulated.driver);
  const int64_t tables = device.execution_use().table_bytes;
  const auto made = device.Allocate(1);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(device.execution_use().graphs, 1) << "the idle one went";
  EXPECT_EQ(device.execution_use().table_bytes, tables) << "all of it is in use";
  EXPECT_EQ(device.Allocate(1).status().code(), Code::kResourceExhausted);
  simulated.ExpectAccounted();
  EXPECT_TRUE(device.Unbind(bindings[1]).ok());
  EXPECT_TRUE(device.Free(made->id).ok());
}

TEST(CudaDeviceMemoryTest, IdleMemoryForPlansMakesRoomForAnAllocation) {
  SimulatedDevice simulated;
  ASSERT_TRUE(simulated.Create().ok());
  CudaDevice& device = *simulated.device;
  // Its proof needs scratch beyond a chunk.
  DeviceSample sample(device, {{1024, 2048, 32}}, {.sample = {.kind = DataKind::kContest}});
  const absl::Status ready =
      device.MakeReady(sample.plan(), sample.blocks().b, sample.blocks().b_scales);
  ASSERT_TRUE(ready.ok()) << ready;
  LeaveNothing(simulated.driver);
  const ExecutionUse before = device.execution_use();
  // More than all the graphs are.
  const int64_t bytes = before.graph_bytes + (1 << 20);
  const auto made = device.Allocate(bytes);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_LE(device.execution_use().table_bytes, before.table_bytes - bytes);
  simulated.ExpectAccounted();
  EXPECT_TRUE(device.Free(made->id).ok());
}

CudaDevice::Options Measured(int64_t memory_bytes) {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  options.memory_bytes = memory_bytes;
  options.measure_rates = true;
  return options;
}

TEST(CudaDeviceMemoryTest, RatesAreMeasuredInWhatMemoryThereIs) {
  // The limit, and then the driver, have room for 2 MiB, the least.
  const int64_t limits[] = {3 << 20, 1 << 30};
  SimulatedHardware hardware = SmallHardware();
  for (const int64_t limit : limits) {
    SCOPED_TRACE(limit);
    SimulatedDevice simulated(Measured(limit), hardware);
    const absl::Status created = simulated.Create();
    ASSERT_TRUE(created.ok()) << created;
    const DeviceRates& rates = simulated.device->limits().rates;
    EXPECT_GT(rates.read_bytes_per_second, 0);
    EXPECT_GT(rates.flops_per_second, 0);
    EXPECT_EQ(simulated.device->memory_use().allocated_bytes, 0) << "given back";
    simulated.ExpectAccounted();
    // What a device takes before it measures, and some more.
    hardware.memory_bytes = static_cast<size_t>(simulated.driver.counts().device_bytes) + (3 << 20);
  }
  SimulatedDevice too_small(Measured((2 << 20) - 1));
  EXPECT_EQ(too_small.Create().code(), Code::kResourceExhausted);
}

// What is done before each call of an entry point; until it is set again, nothing.
template <typename... Arguments>
std::function<void()>& Before(CUresult (*&entry)(Arguments...)) {
  static std::function<void()> act;
  static CUresult (*original)(Arguments...);
  original = std::exchange(entry, [](Arguments... arguments) -> CUresult {
    if (act) act();
    return original(arguments...);
  });
  return act;
}

// An import looks whether the memory is sealed and becomes known to the device;
// a seal in between would be unknown to the one, and the import to the other.
TEST(CudaDeviceMemoryTest, ASealDuringAnImportIsNotOverlooked) {
  const SimulatedDriver simulated(SmallHardware());
  CudaDriver driver = simulated.driver();
  std::function<void()>& before_mapping = Before(driver.MemMap);
  auto device = CudaDevice::Create(driver, SimulatedDevice::SmallOptions(), [] {});
  ASSERT_TRUE(device.ok()) << device.status();
  const Allocation made = *(*device)->Allocate(1);
  UniqueFd fd = *(*device)->Export(made.id);
  before_mapping = [&] { EXPECT_TRUE((*device)->Seal(made.id).ok()); };
  const auto twin = (*device)->Import(std::move(fd), made.identity, made.bytes, /*writable=*/true);
  before_mapping = nullptr;
  EXPECT_EQ(twin.status().code(), Code::kFailedPrecondition) << twin.status();
  EXPECT_EQ((*device)->memory_use().allocations, 1);
  EXPECT_EQ((*device)->memory_use().allocated_bytes, made.bytes);
  EXPECT_EQ(simulated.counts().mappings, simulated.counts().memory_handles);
  device->reset();
  EXPECT_EQ(simulated.counts(), DriverCounts());
  EXPECT_THAT(simulated.misuse(), ::testing::IsEmpty());
}

// One of two kernels was launched when memory lacked for the second. What the first
// reads goes back to where others are given it.
TEST(CudaDeviceMemoryTest, WhatAHalfFailedWarmUpReadsIsKeptUntilItIsOver) {
  SimulatedDriver simulated(SmallHardware());
  CudaDriver driver = simulated.driver();
  std::function<void()>& before_launch = Before(driver.LaunchKernel);
  auto device = CudaDevice::Create(driver, SimulatedDevice::SmallOptions(), [] {});
  ASSERT_TRUE(device.ok()) << device.status();
  DeviceSample sample(**device, {{5, 48, 96}});
  std::atomic<bool> launched = false;
  before_launch = [&] {
    if (launched) return;
    simulated.Hold();
    simulated.FailNth(EntryPoint::kLaunchKernel, 1, CUDA_ERROR_OUT_OF_MEMORY);
    launched = true;
  };
  auto bound = std::async(std::launch::async,
                          [&] { return (*device)->Bind(sample.plan(), sample.blocks()).status(); });
  while (!launched) std::this_thread::yield();
  EXPECT_EQ(bound.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  simulated.Resume();
  const absl::Status status = bound.get();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_TRUE(simulated.faults_used());
  before_launch = nullptr;
  EXPECT_TRUE((*device)->Bind(sample.plan(), sample.blocks()).ok());
}

}  // namespace
}  // namespace tetrad::cuda
