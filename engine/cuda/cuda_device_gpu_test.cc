// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract suite over a real GPU, and what only a real one can show.
#include <cstdio>

#include <gtest/gtest.h>

#include "engine/cuda/cuda_device.h"
#include "engine/device_contract.h"
#include "engine/support/status_macros.h"

namespace tetrad::cuda {
namespace {

absl::StatusOr<std::unique_ptr<CudaDevice>> MakeDevice(const ContractOptions& options,
                                                       bool portable_only,
                                                       std::function<void()> wake) {
  TETRAD_ASSIGN_OR_RETURN(const CudaDriver driver, LoadCudaDriver());
  return CudaDevice::Create(driver,
                            {.memory_bytes = options.memory_bytes,
                             .max_in_flight = options.max_in_flight,
                             .plan_bytes = 256 << 20,
                             .copy_slots = 4,
                             .measure_rates = false,
                             .portable_only = portable_only},
                            std::move(wake));
}

// Without a GPU there is nothing to instantiate the suite over.
std::vector<DeviceMaker> Makers() {
  if (!LoadCudaDriver().ok()) return {};
  const auto maker = [](const char* name, bool portable_only) -> DeviceMaker {
    return {name,
            [=](const ContractOptions& options,
                std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
              return MakeDevice(options, portable_only, std::move(wake));
            }};
  };
  return {maker("Gpu", false), maker("PortableGpu", true)};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceContract);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, ::testing::ValuesIn(Makers()), MakerName());

class CudaDeviceGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = LoadCudaDriver();
    if (!driver.ok()) GTEST_SKIP() << driver.status().message();
    driver_ = *driver;
  }
  CudaDriver driver_;
};

TEST_F(CudaDeviceGpuTest, ADeviceIsFoundByItsUuidAlone) {
  const auto devices = ListDevices(driver_);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_FALSE(devices->empty());
  for (const DeviceInfo& info : *devices) {
    std::printf("%s %s %d\n", info.uuid.c_str(), info.name.c_str(), info.capability);
    EXPECT_EQ(info.uuid.size(), 40u);
    const auto device = CudaDevice::Create(
        driver_, {.uuid = info.uuid, .memory_bytes = 64 << 20, .measure_rates = false}, [] {});
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->limits().uuid, info.uuid);
  }
  const auto none =
      CudaDevice::Create(driver_, {.uuid = "GPU-none", .measure_rates = false}, [] {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(none.status().message().find(devices->front().uuid), std::string::npos);
}

TEST_F(CudaDeviceGpuTest, RatesAreThoseOfAGpu) {
  const auto device = CudaDevice::Create(driver_, {.memory_bytes = 2ll << 30}, [] {});
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceRates& rates = (*device)->limits().rates;
  std::printf("read %.3f TB/s, arithmetic %.1f TFLOP/s\n", rates.read_bytes_per_second * 1e-12,
              rates.flops_per_second * 1e-12);
  EXPECT_GT(rates.read_bytes_per_second, 1e11);
  EXPECT_GT(rates.flops_per_second, 1e13);
  EXPECT_EQ((*device)->memory_use().allocated_bytes, 0);
}

// What the device says it holds is what the driver's free memory fell by.
TEST_F(CudaDeviceGpuTest, MemoryIsAccountedForAsTheDriverSeesIt) {
  const auto device = CudaDevice::Create(
      driver_, {.memory_bytes = 8ll << 30, .plan_bytes = 1ll << 30, .measure_rates = false}, [] {});
  ASSERT_TRUE(device.ok()) << device.status();
  ASSERT_TRUE((*device)->Enter().ok());
  const auto free_bytes = [&] {
    size_t free = 0, total = 0;
    EXPECT_EQ(driver_.MemGetInfo(&free, &total), CUDA_SUCCESS);
    return static_cast<int64_t>(free);
  };
  const auto accounted = [&] {
    const ExecutionUse use = (*device)->execution_use();
    return (*device)->memory_use().allocated_bytes + use.table_bytes + use.graph_bytes;
  };
  const int64_t granule = (*device)->Allocate(1)->bytes;
  const int64_t free_before = free_bytes(), accounted_before = accounted();
  std::vector<std::unique_ptr<DeviceSample>> samples;
  std::vector<BindingId> bindings;
  for (int i = 0; i < 100; ++i) {
    samples.push_back(std::make_unique<DeviceSample>(
        **device, std::vector<GroupShape>{{3 + i, 64, 128}, {i, 32, 64}}));
    const auto binding = (*device)->Bind(samples.back()->plan(), samples.back()->blocks());
    ASSERT_TRUE(binding.ok()) << binding.status();
    bindings.push_back(*binding);
  }
  const ExecutionUse use = (*device)->execution_use();
  std::printf("100 bindings: %lld graphs of %lld bytes, tables %lld bytes, %lld captures\n",
              static_cast<long long>(use.graphs), static_cast<long long>(use.graph_bytes),
              static_cast<long long>(use.table_bytes), static_cast<long long>(use.captures));
  EXPECT_EQ(use.plans, 100);
  const int64_t fell = free_before - free_bytes(), grew = accounted() - accounted_before;
  EXPECT_LE(std::abs(fell - grew), granule) << fell << " " << grew;
  for (const BindingId binding : bindings) EXPECT_TRUE((*device)->Unbind(binding).ok());
  for (auto& sample : samples) EXPECT_TRUE(sample->FreeAll());
  samples.clear();
  EXPECT_EQ((*device)->execution_use().plans, 0);
}

}  // namespace
}  // namespace tetrad::cuda
