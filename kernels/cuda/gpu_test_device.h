// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests with label gpu: the device that all tests of a program share, and
// the reason to skip where there is none.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/direct_device.h"

namespace tetrad::cuda {

class GpuTest : public testing::Test {
 protected:
  static constexpr size_t kArenaBytes = size_t{1} << 30;

  static void SetUpTestSuite() {
    auto device = DirectDevice::Open(kArenaBytes);
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
