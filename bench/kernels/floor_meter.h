// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FloorMeter: the rates that floors are computed from, measured again and again
// beside what they are floors of: the device's clock falls under load, and a rate
// of a minute ago is another device's.
//
//   products   cuBLAS, 8192 x 8192 x 8192, operands of dequantised FP4 numbers, B as
//              [n, k] or [k, n], whichever was faster at the start
//   reading    1 GiB, more than any cache, each byte once
//
// One thread; the Gpu must outlive it.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"

#include "bench/kernels/cublas.h"
#include "bench/kernels/gpu.h"
#include "engine/floor.h"
#include "kernels/problem.h"

namespace tetrad::bars {

class FloorMeter {
 public:
  static absl::StatusOr<std::unique_ptr<FloorMeter>> Make(Gpu& gpu, int threads);
  ~FloorMeter();
  FloorMeter(const FloorMeter&) = delete;

  // The rates now. Products are BF16 for activations of BF16, FP16 for the others,
  // NVFP4 among them.
  absl::StatusOr<DeviceRates> Measure(ActivationType activations);
  const Cublas& cublas() const { return cublas_; }

 private:
  FloorMeter(Gpu& gpu, Cublas cublas) : gpu_(gpu), cublas_(std::move(cublas)) {}
  absl::Status MakeReading();
  absl::Status MakeProducts(ActivationType type, int threads, GpuGraph& graph);

  Gpu& gpu_;
  const Cublas cublas_;
  Cublas::Handle handle_ = nullptr;
  GpuBuffer workspace_, memory_, c_;
  std::array<GpuBuffer, 4> operands_;  // a and b of FP16, then of BF16
  GpuGraph reading_, fp16_, bf16_;
};

}  // namespace tetrad::bars
