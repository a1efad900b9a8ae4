// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_rates.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"

#include "kernels/cuda/rates.h"

namespace tetrad::cuda {
namespace {

constexpr int kReadings = 5;
constexpr int64_t kMostBytes = int64_t{1} << 30;  // far beyond any cache
constexpr int64_t kLeastBytes = int64_t{2} << 20;
constexpr int32_t kMmaRepeats = 512;

// A stream with two events around what is timed.
class Stopwatch {
 public:
  explicit Stopwatch(CudaContext& context) : context_(context) {}
  ~Stopwatch() {
    const CudaDriver& driver = context_.driver();
    // What was begun still reads memory that the caller is about to free.
    if (stream_ != nullptr) context_.Synchronize(stream_).IgnoreError();
    for (const CUevent event : events_) {
      if (event != nullptr) context_.Release(driver.EventDestroy(event), "cuEventDestroy");
    }
    if (stream_ != nullptr) context_.Release(driver.StreamDestroy(stream_), "cuStreamDestroy");
  }
  Stopwatch(const Stopwatch&) = delete;

  absl::Status Make() {
    TETRAD_RETURN_IF_ERROR(
        TETRAD_CUDA(context_, StreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, 0));
    for (CUevent& event : events_) {
      TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, EventCreate, &event, CU_EVENT_DEFAULT));
    }
    return absl::OkStatus();
  }

  // Seconds of the fastest of a few runs, after one that is not counted.
  absl::StatusOr<double> Best(absl::FunctionRef<absl::Status(CUstream)> work) {
    float best_ms = 0;
    for (int reading = -1; reading < kReadings; ++reading) {
      TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, EventRecord, events_[0], stream_));
      TETRAD_RETURN_IF_ERROR(work(stream_));
      TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, EventRecord, events_[1], stream_));
      TETRAD_RETURN_IF_ERROR(context_.Synchronize(events_[1]));
      float ms = 0;
      TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, EventElapsedTime, &ms, events_[0], events_[1]));
      if (reading == 0 || (reading > 0 && ms < best_ms)) best_ms = ms;
    }
    return std::max(best_ms, 1e-6f) * 1e-3;
  }

 private:
  CudaContext& context_;
  CUstream stream_ = nullptr;
  CUevent events_[2] = {};
};

}  // namespace

absl::StatusOr<DeviceRates> MeasureRates(CudaContext& context, const KernelLibrary& library,
                                         CudaMemory& memory, int32_t multiprocessors) {
  int64_t bytes = kMostBytes;
  auto allocation = memory.Allocate(bytes);
  while (absl::IsResourceExhausted(allocation.status()) && bytes > kLeastBytes) {
    bytes /= 2;
    allocation = memory.Allocate(bytes);
  }
  TETRAD_RETURN_IF_ERROR(allocation.status());
  absl::Cleanup free = [&] { memory.Free(allocation->id).IgnoreError(); };
  TETRAD_ASSIGN_OR_RETURN(const uint64_t address,
                          memory.table().Pin({allocation->id, 0, bytes}, false));
  memory.table().Unpin(allocation->id, false);
  Stopwatch stopwatch(context);
  TETRAD_RETURN_IF_ERROR(stopwatch.Make());
  const Kernel& read = library.read_rate();
  const uint32_t read_ctas = static_cast<uint32_t>(multiprocessors * read.ctas_per_multiprocessor);
  TETRAD_ASSIGN_OR_RETURN(const double read_s, stopwatch.Best([&](CUstream stream) {
    return LaunchKernel(context, read, read_ctas, stream, address, bytes, address);
  }));
  const uint32_t mma_ctas = static_cast<uint32_t>(multiprocessors * kMmaRateCtas);
  TETRAD_ASSIGN_OR_RETURN(const double mma_s, stopwatch.Best([&](CUstream stream) {
    return LaunchKernel(context, library.mma_rate(), mma_ctas, stream, address, kMmaRepeats);
  }));
  return DeviceRates{
      .flops_per_second = static_cast<double>(kMmaFlopsPerRepeat) * kMmaRepeats * mma_ctas / mma_s,
      .read_bytes_per_second = static_cast<double>(bytes) / read_s};
}

}  // namespace tetrad::cuda
