// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/bench_device.h"

#include <utility>

#ifdef TETRAD_BARS_CUDA
#include "bench/bars/cuda/open_device.h"
#endif
#include "engine/cpu_device.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

absl::StatusOr<std::unique_ptr<Device>> Open(const Setting& setting, std::function<void()> wake) {
  if (setting.device == DeviceKind::kCpu) {
    return CpuDevice::Create({.measure_rates = false}, std::move(wake));
  }
#ifdef TETRAD_BARS_CUDA
  return OpenCuda(setting, std::move(wake));
#else
  return absl::FailedPreconditionError("this build has no CUDA device");
#endif
}

}  // namespace

absl::StatusOr<DeviceFacts> FindDevice(DeviceKind kind) {
  TETRAD_ASSIGN_OR_RETURN(const auto device, Open({.device = kind}, [] {}));
  return DeviceFacts{.name = device->limits().name, .uuid = device->limits().uuid};
}

Engine::DeviceFactory FactoryOf(const Setting& setting) {
  return [setting](std::function<void()> wake) { return Open(setting, std::move(wake)); };
}

}  // namespace tetrad::bars
