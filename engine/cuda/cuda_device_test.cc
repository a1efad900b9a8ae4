// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract suite over the CUDA device on a simulated driver.
#include "engine/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/simulated_driver/simulated_driver.h"
#include "engine/device_contract.h"

namespace tetrad::cuda {
namespace {

// A driver for each test; afterwards nothing may be left in it.
class FreshDriver : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo&) override {
    driver_ = std::make_unique<SimulatedDriver>(SimulatedHardware{.granularity = 64 << 10});
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    EXPECT_EQ(driver_->counts(), DriverCounts());
    EXPECT_THAT(driver_->misuse(), ::testing::IsEmpty());
    EXPECT_EQ(driver_->last_fault(), "");
    driver_.reset();
  }
  const CudaDriver& driver() const { return driver_->driver(); }

 private:
  std::unique_ptr<SimulatedDriver> driver_;
};

// Makers may be made more than once.
FreshDriver& InstalledFreshDriver() {
  static FreshDriver* const listener = [] {
    auto* const made = new FreshDriver;
    ::testing::UnitTest::GetInstance()->listeners().Append(made);  // which owns it
    return made;
  }();
  return *listener;
}

// Of capability 9.0: with the Hopper kernel, or with the portable one alone.
DeviceMaker Maker(const char* name, bool portable_only) {
  return {name,
          [&fresh = InstalledFreshDriver(), portable_only](
              const ContractOptions& options,
              std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
            return CudaDevice::Create(fresh.driver(),
                                      {.memory_bytes = options.memory_bytes,
                                       .max_in_flight = options.max_in_flight,
                                       .plan_bytes = 256 << 20,
                                       .copy_slots = 4,
                                       .measure_rates = false,
                                       .portable_only = portable_only},
                                      std::move(wake));
          }};
}

// The thread sanitizer takes minutes for either, and there are no threads of one kernel alone.
#ifdef __SANITIZE_THREAD__
const auto kMakers = ::testing::Values(Maker("Hopper", false));
#else
const auto kMakers = ::testing::Values(Maker("Hopper", false), Maker("Portable", true));
#endif
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, kMakers, MakerName());

}  // namespace
}  // namespace tetrad::cuda
