// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/bench_device.h"

#include <utility>

#include "engine/cpu_device.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

absl::StatusOr<std::unique_ptr<Device>> Open(DeviceKind kind, std::function<void()> wake) {
  if (kind == DeviceKind::kCpu) {
    return CpuDevice::Create({.measure_rates = false}, std::move(wake));
  }
  return absl::FailedPreconditionError("this build has no CUDA device");
}

}  // namespace

absl::StatusOr<DeviceFacts> FindDevice(DeviceKind kind) {
  TETRAD_ASSIGN_OR_RETURN(const auto device, Open(kind, [] {}));
  return DeviceFacts{.name = device->limits().name, .uuid = device->limits().uuid};
}

Engine::DeviceFactory FactoryOf(const Setting& setting) {
  return
      [kind = setting.device](std::function<void()> wake) { return Open(kind, std::move(wake)); };
}

}  // namespace tetrad::bars
