// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// portable_bench [SHAPE...]: device time of the portable CUDA kernel.
//
// One line of JSON per shape and activation type: the median of 50 launches by
// events, with the 10th and 90th percentile, each after 256 MiB of other memory
// were written, so that nothing is left in a cache; and whether a sample of the
// outputs has the bits of the FP64 oracle. An event pair adds 2 to 3 us. Exit
// code 1: a wrong result; 77: no device.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule.h"
#include "kernels/compare.h"
#include "kernels/cuda/device_operands.h"
#include "kernels/cuda/direct_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/shapes.h"

namespace tetrad::cuda {
namespace {

constexpr int kLaunches = 50;
constexpr int kNoDevice = 77;
constexpr size_t kFlushBytes = size_t{256} << 20;
constexpr size_t kArenaBytes = size_t{4} << 30;

constexpr TileTraits kTraits = {.max_rows = kPortableTileRows,
                                .max_columns = kPortableTileColumns,
                                .row_granule = kPortableRowGranule,
                                .column_granule = kPortableColumnGranule};

const char* Name(ActivationType type) {
  switch (type) {
    case ActivationType::kNvfp4:
      return "nvfp4";
    case ActivationType::kFp16:
      return "fp16";
    case ActivationType::kBf16:
      return "bf16";
  }
  return "";
}

std::vector<NamedShape> Shapes(const std::vector<std::string_view>& names) {
  std::vector<NamedShape> chosen;
  const auto add = [&](std::span<const NamedShape> shapes) {
    for (const NamedShape& shape : shapes) {
      const bool named = std::find(names.begin(), names.end(), shape.name) != names.end();
      if (names.empty() || named) chosen.push_back(shape);
    }
  };
  add(kBenchmarkShapes);
  add(kDecodeShapes);
  return chosen;
}

// Microseconds of each launch, ascending.
std::vector<double> Measure(DirectDevice& device, CUfunction entry, int ctas, CUdeviceptr flush,
                            const LaunchArguments& arguments) {
  const CudaDriver& driver = device.driver();
  CUevent begin = nullptr;
  CUevent end = nullptr;
  device.Require(driver.EventCreate(&begin, CU_EVENT_DEFAULT), "cuEventCreate");
  device.Require(driver.EventCreate(&end, CU_EVENT_DEFAULT), "cuEventCreate");
  std::vector<double> times;
  for (int i = 0; i < kLaunches + 1; ++i) {
    device.Fill(flush, static_cast<uint8_t>(i), kFlushBytes);
    device.Require(driver.EventRecord(begin, device.stream()), "cuEventRecord");
    device.Launch(entry, ctas, kPortableThreads, kPortableSharedBytes, arguments);
    device.Require(driver.EventRecord(end, device.stream()), "cuEventRecord");
    device.Synchronize();
    float ms = 0;
    device.Require(driver.EventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    if (i > 0) times.push_back(ms * 1e3);  // the first one also loads the code
  }
  driver.EventDestroy(begin);
  driver.EventDestroy(end);
  std::sort(times.begin(), times.end());
  return times;
}

bool RunShape(DirectDevice& device, const NamedShape& shape, ActivationType type) {
  device.Reset();
  const ProblemTypes types{.a_type = type};
  const Operands operands(shape.groups, {.types = types, .kind = DataKind::kContest});
  const CUdeviceptr flush = device.Allocate(kFlushBytes);
  DeviceOperands on_device(device, operands);
  const CUfunction entry = device.Function("portable", PortableEntry(type), kPortableSharedBytes);
  const int ctas =
      device.multiprocessors() * device.Occupancy(entry, kPortableThreads, kPortableSharedBytes);
  const Schedule schedule = LayOutTiles(shape.groups, kTraits, ctas);
  const std::vector<double> times =
      Measure(device, entry, schedule.ctas(), flush,
              on_device.HostM(operands.groups(), schedule.tiles, schedule.cta_begin));
  on_device.DownloadOutput();
  const Verdict verdict =
      Verify(types, operands.groups(), {.threads = 8, .max_products = int64_t{1} << 30});
  double flops = 0;
  double bytes = 0;
  for (const GroupShape& group : shape.groups) {
    const int64_t weights =
        CodeBytes(group.n, group.k) + ScalePlaneBytes(types.b_scale_layout, group.n, group.k);
    flops += 2.0 * group.m * group.n * group.k;
    bytes += static_cast<double>(ActivationBytes(type, group.m, group.k)) + 2.0 * group.m * group.n;
    if (group.m > 0) bytes += static_cast<double>(weights);
  }
  const double us = times[times.size() / 2];
  std::printf(
      "{\"bench\": \"portable\", \"shape\": \"%s\", \"activations\": \"%s\", \"us\": %.2f, "
      "\"us_p10\": %.2f, \"us_p90\": %.2f, \"flops\": %.4g, \"tflops\": %.1f, \"bytes\": %.4g, "
      "\"gbytes_per_second\": %.0f, \"ctas\": %d, \"tiles\": %zu, \"balance\": %.3f, "
      "\"bits_equal\": %s, \"elements_compared\": %lld, \"device\": \"%s\", \"capability\": %d}\n",
      std::string(shape.name).c_str(), Name(type), us, times[times.size() / 10],
      times[times.size() * 9 / 10], flops, flops / us * 1e-6, bytes, bytes / us * 1e-3,
      schedule.ctas(), schedule.tiles.size(), schedule.balance(), verdict.pass ? "true" : "false",
      static_cast<long long>(verdict.elements), device.name().c_str(), device.capability());
  std::fflush(stdout);
  return verdict.pass;
}

int Main(const std::vector<std::string_view>& names) {
  const absl::StatusOr<CudaDriver> driver = LoadCudaDriver();
  if (!driver.ok()) {
    std::fprintf(stderr, "portable_bench: %s\n", driver.status().ToString().c_str());
    return kNoDevice;
  }
  const auto device = DirectDevice::Open(*driver, kArenaBytes);
  if (!device.ok()) {
    std::fprintf(stderr, "portable_bench: %s\n", device.status().ToString().c_str());
    return kNoDevice;
  }
  const std::vector<NamedShape> shapes = Shapes(names);
  if (shapes.empty()) {
    std::fprintf(stderr, "portable_bench: no such shape; S1 .. S4, D1 .. D3\n");
    return 2;
  }
  bool right = true;
  for (const NamedShape& shape : shapes) {
    for (const auto type : {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
      right = RunShape(**device, shape, type) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace tetrad::cuda

int main(int argc, char** argv) { return tetrad::cuda::Main({argv + 1, argv + argc}); }
