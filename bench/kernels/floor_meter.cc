// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/floor_meter.h"

#include <utility>

#include "bench/kernels/grouped_data.h"
#include "kernels/cuda/proof.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kSide = 8192;
constexpr int64_t kElements = int64_t{kSide} * kSide;
constexpr double kFlops = 2.0 * kSide * kElements;
constexpr int kProducts = 2, kReadings = 2;  // of one graph
constexpr int kTrials = 3;
constexpr int64_t kReadBytes = int64_t{1} << 30;
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS takes on this architecture
constexpr uint32_t kFillGrid = 512, kSeed = 5;

}  // namespace

absl::StatusOr<std::unique_ptr<FloorMeter>> FloorMeter::Make(Gpu& gpu, int threads) {
  TETRAD_ASSIGN_OR_RETURN(Cublas cublas, Cublas::Load());
  std::unique_ptr<FloorMeter> meter(new FloorMeter(gpu, std::move(cublas)));
  TETRAD_RETURN_IF_ERROR(gpu.context().Enter());
  TETRAD_ASSIGN_OR_RETURN(meter->handle_, meter->cublas_.Create());
  TETRAD_RETURN_IF_ERROR(meter->cublas_.SetStream(meter->handle_, gpu.stream()));
  TETRAD_ASSIGN_OR_RETURN(meter->workspace_, gpu.Allocate(kWorkspaceBytes));
  TETRAD_RETURN_IF_ERROR(
      meter->cublas_.SetWorkspace(meter->handle_, meter->workspace_.address(), kWorkspaceBytes));
  TETRAD_RETURN_IF_ERROR(meter->MakeReading());
  TETRAD_ASSIGN_OR_RETURN(meter->c_, gpu.Allocate(kElements * 2));
  TETRAD_RETURN_IF_ERROR(meter->MakeProducts(ActivationType::kFp16, threads, meter->fp16_));
  TETRAD_RETURN_IF_ERROR(meter->MakeProducts(ActivationType::kBf16, threads, meter->bf16_));
  return meter;
}

FloorMeter::~FloorMeter() {
  if (!gpu_.context().Enter().ok() || !gpu_.Synchronize().ok()) return;
  if (handle_ != nullptr) cublas_.Destroy(handle_);
}

absl::Status FloorMeter::MakeReading() {
  TETRAD_ASSIGN_OR_RETURN(memory_, gpu_.Allocate(kReadBytes));
  TETRAD_RETURN_IF_ERROR(cuda::LaunchKernel(gpu_.context(), gpu_.kernels().proof_fill(), kFillGrid,
                                            gpu_.stream(), memory_.address(), kReadBytes, kSeed,
                                            static_cast<uint32_t>(cuda::ProofFill::kCodes)));
  const cuda::Kernel& read = gpu_.kernels().read_rate();
  const auto grid =
      static_cast<uint32_t>(gpu_.device().limits().ctas * read.ctas_per_multiprocessor);
  TETRAD_ASSIGN_OR_RETURN(reading_, gpu_.Capture([&](CUstream stream) {
    for (int i = 0; i < kReadings; ++i) {
      TETRAD_RETURN_IF_ERROR(cuda::LaunchKernel(
          gpu_.context(), read, grid, stream, memory_.address(), kReadBytes, workspace_.address()));
    }
    return absl::OkStatus();
  }));
  return absl::OkStatus();
}

absl::Status FloorMeter::MakeProducts(ActivationType type, int threads, GpuGraph& graph) {
  const size_t first = type == ActivationType::kFp16 ? 0 : 2;
  for (size_t i = first; i < first + 2; ++i) {
    const auto values =
        Dequantise(type, MakeCodes(kElements / 2, 2 * i + 1, threads),
                   MakeScales(kElements / kScaleBlock, 2 * i + 2, threads), threads);
    TETRAD_ASSIGN_OR_RETURN(operands_[i], gpu_.Place(values));
  }
  const CublasProduct product{.m = kSide,
                              .n = kSide,
                              .k = kSide,
                              .a = operands_[first].address(),
                              .b = operands_[first + 1].address(),
                              .c = c_.address()};
  double best_us = 0;
  for (const bool b_rows : {true, false}) {
    TETRAD_RETURN_IF_ERROR(cublas_.Multiply(handle_, type, product, b_rows));
    TETRAD_RETURN_IF_ERROR(gpu_.Synchronize());
    TETRAD_ASSIGN_OR_RETURN(GpuGraph captured, gpu_.Capture([&](CUstream) {
      for (int i = 0; i < kProducts; ++i) {
        TETRAD_RETURN_IF_ERROR(cublas_.Multiply(handle_, type, product, b_rows));
      }
      return absl::OkStatus();
    }));
    std::vector<double> times;
    for (int trial = 0; trial < kTrials; ++trial) {
      TETRAD_ASSIGN_OR_RETURN(times.emplace_back(), gpu_.Time(captured));
    }
    const double us = Median(std::move(times));
    if (graph.exec() != nullptr && us >= best_us) continue;
    best_us = us;
    graph = std::move(captured);
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceRates> FloorMeter::Measure(ActivationType activations) {
  const GpuGraph& products = activations == ActivationType::kBf16 ? bf16_ : fp16_;
  TETRAD_RETURN_IF_ERROR(gpu_.Settle(products));
  TETRAD_ASSIGN_OR_RETURN(const double product_us, gpu_.Time(products));
  TETRAD_ASSIGN_OR_RETURN(const double read_us, gpu_.Time(reading_));
  return DeviceRates{
      .flops_per_second = kProducts * kFlops / (product_us * 1e-6),
      .read_bytes_per_second = static_cast<double>(kReadings * kReadBytes) / (read_us * 1e-6)};
}

}  // namespace tetrad::bars
