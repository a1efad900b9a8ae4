// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of device code, which are built twice: with the machine's driver
// (label gpu) and with an emulated one. The device that all tests of a program
// share, and the reason to skip where there is none.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/cuda/direct_device.h"

namespace tetrad::cuda {

// The emulation is some thousand times slower than a device.
enum class Effort { kSample, kAll };

// Each program has one definition.
absl::StatusOr<CudaDriver> TestDriver();
Effort TestEffort();

class GpuTest : public testing::Test {
 protected:
  static constexpr size_t kArenaBytes = size_t{1} << 30;

  static void SetUpTestSuite() {
    const absl::StatusOr<CudaDriver> driver = TestDriver();
    const auto open = [&]() -> absl::StatusOr<std::unique_ptr<DirectDevice>> {
      if (!driver.ok()) return driver.status();
      return DirectDevice::Open(*driver, kArenaBytes);
    };
    auto device = open();
    if (device.ok()) {
      device_ = std::move(*device).release();
    } else {
      reason_ = new std::string(device.status().ToString());
      // CTest knows a skipped program by these words (cmake/Cuda.cmake).
      std::printf("no device: every test is skipped\n");
    }
  }
  static void TearDownTestSuite() {
    delete device_;
    delete reason_;
    device_ = nullptr;
    reason_ = nullptr;
  }
  void SetUp() override {
    if (device_ == nullptr) GTEST_SKIP() << *reason_;
    device_->Reset();
  }

  DirectDevice& device() { return *device_; }

 private:
  static inline DirectDevice* device_ = nullptr;
  static inline std::string* reason_ = nullptr;
};

}  // namespace tetrad::cuda
