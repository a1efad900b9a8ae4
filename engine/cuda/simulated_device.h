// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDevice (tests only): a CUDA device on a simulated driver of its own.
//
// What fails here is a failure of the test; so is anything left in the driver
// when the device is gone, and misuse. Not thread-safe.
#pragma once

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/simulated_driver/simulated_driver.h"
#include "engine/device_contract.h"

namespace tetrad::cuda {

inline SimulatedHardware SmallHardware() {
  return {.memory_bytes = 256 << 20, .granularity = 64 << 10};
}

class SimulatedDevice {
 public:
  static CudaDevice::Options SmallOptions() {
    return {.memory_bytes = 64 << 20,
            .lanes = 2,
            .max_in_flight = 8,
            .plan_bytes = 32 << 20,
            .copy_slots = 2,
            .measure_rates = false};
  }

  explicit SimulatedDevice(const CudaDevice::Options& options = SmallOptions(),
                           const SimulatedHardware& hardware = SmallHardware())
      : hardware(hardware),
        driver(hardware),
        wakes(std::make_shared<WakeCounter>()),
        options_(options) {}
  ~SimulatedDevice() { Destroy(); }

  absl::Status Create() {
    auto made = CudaDevice::Create(driver.driver(), options_, [wakes = wakes] { wakes->Wake(); });
    if (!made.ok()) return made.status();
    device = *std::move(made);
    return absl::OkStatus();
  }
  // Of a lost device not all can be given back: the process ends.
  void Destroy() {
    device.reset();
    EXPECT_EQ(driver.counts().context_retains, 0);
    if (!driver.broken() && !driver.wait_failed()) {
      EXPECT_EQ(driver.counts(), DriverCounts());
    }
    EXPECT_THAT(driver.misuse(), ::testing::IsEmpty());
  }

  // The one completion that comes. False if it never does.
  [[nodiscard]] bool Wait(Completion* out) {
    while (true) {
      const uint64_t seen = wakes->count();
      if (device->Poll({out, 1}) == 1) return true;
      if (!wakes->WaitBeyond(seen)) return false;
    }
  }
  // What the device says it holds is what the driver gave it.
  void ExpectAccounted() {
    const DriverCounts counts = driver.counts();
    const MemoryUse memory = device->memory_use();
    const ExecutionUse use = device->execution_use();
    const int64_t modules = counts.modules * static_cast<int64_t>(hardware.module_bytes);
    EXPECT_EQ(counts.device_bytes,
              memory.allocated_bytes + use.table_bytes + use.graph_bytes + modules);
    EXPECT_EQ(counts.graph_execs, use.graphs);
    EXPECT_EQ(counts.memory_handles, counts.mappings);
    EXPECT_EQ(counts.reservations, counts.mappings);
  }

  const SimulatedHardware hardware;
  SimulatedDriver driver;
  std::shared_ptr<WakeCounter> wakes;
  std::unique_ptr<CudaDevice> device;

 private:
  const CudaDevice::Options options_;
};

}  // namespace tetrad::cuda
