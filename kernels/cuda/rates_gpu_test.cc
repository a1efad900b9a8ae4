// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/rates.h"

namespace tetrad::cuda {
namespace {

using RatesGpuTest = GpuTest;

// Only that they run and scale: what a device reaches is for benchmarks to say.
TEST_F(RatesGpuTest, RatesArePlausible) {
  const CUdeviceptr sink = device().Allocate(4);
  CUevent begin = nullptr;
  CUevent end = nullptr;
  const CudaDriver& driver = device().driver();
  device().Require(driver.EventCreate(&begin, 0), "cuEventCreate");
  device().Require(driver.EventCreate(&end, 0), "cuEventCreate");
  const auto seconds = [&](auto launch) {
    launch();
    device().Require(driver.EventRecord(begin, device().stream()), "cuEventRecord");
    launch();
    device().Require(driver.EventRecord(end, device().stream()), "cuEventRecord");
    device().Synchronize();
    float ms = 0;
    device().Require(driver.EventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    return ms * 1e-3;
  };
  const int multiprocessors = device().multiprocessors();
  const CUfunction mma = device().Function("rates", kMmaRateEntry);
  const auto mma_seconds = [&](int32_t repeats) {
    return seconds([&] {
      device().Launch(mma, multiprocessors * kMmaRateCtas, kRateThreads, 0, sink, repeats);
    });
  };
  const double once = mma_seconds(20000);
  const double rate = 20000.0 * static_cast<double>(kMmaFlopsPerRepeat) * multiprocessors / once;
  std::printf("16-bit multiply-adds: %.1f TFLOP/s\n", rate * 1e-12);
  EXPECT_GT(rate, 50e12);
  EXPECT_LT(rate, 3000e12);
  EXPECT_NEAR(mma_seconds(40000) / once, 2, 0.5);

  constexpr int64_t kBytes = int64_t{900} << 20;
  const CUdeviceptr from = device().Allocate(kBytes);
  device().Fill(from, 1, kBytes);
  const double read = seconds([&] {
    device().Launch(device().Function("rates", kReadRateEntry), multiprocessors * 8, kRateThreads,
                    0, from, kBytes, sink);
  });
  std::printf("reads: %.3f TB/s\n", kBytes / read * 1e-12);
  EXPECT_GT(kBytes / read, 0.2e12);
  EXPECT_LT(kBytes / read, 20e12);
  driver.EventDestroy(begin);
  driver.EventDestroy(end);
}

}  // namespace
}  // namespace tetrad::cuda
