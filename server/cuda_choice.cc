// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/cuda_choice.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/support/status_macros.h"
#include "kernels/cuda/driver.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr std::string_view kUuidPrefix = "GPU-";

std::string Listed(std::span<const cuda::DeviceInfo> devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const cuda::DeviceInfo& device) {
    absl::StrAppend(out, "cuda:", device.uuid, " (", device.name, ")");
  });
}

// The status with the device's name before its message, so that it stands alone.
absl::Status Named(std::string_view device, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("device '", ErrorText(device, 64), "': ", status.message()));
}

}  // namespace

absl::StatusOr<cuda::DeviceInfo> PickCudaDevice(std::string_view wanted,
                                                std::span<const cuda::DeviceInfo> devices) {
  if (devices.empty()) {
    return absl::FailedPreconditionError("no GPU for which this build has kernels is here");
  }
  const std::string_view name = wanted.substr(wanted.find(':') + 1);
  if (name == "all") {
    if (devices.size() == 1) return devices.front();
    return absl::FailedPreconditionError(absl::StrCat(
        "a daemon serves one device so far; start one for each of: ", Listed(devices)));
  }
  if (!name.starts_with(kUuidPrefix) || name.size() == kUuidPrefix.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a GPU is named by its UUID; there are: ", Listed(devices)));
  }
  const cuda::DeviceInfo* found = nullptr;
  for (const cuda::DeviceInfo& device : devices) {
    if (!absl::StartsWithIgnoreCase(device.uuid, absl::string_view(name.data(), name.size()))) {
      continue;
    }
    if (found != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the UUIDs of several devices begin so; there are: ", Listed(devices)));
    }
    found = &device;
  }
  if (found != nullptr) return *found;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no such GPU; there are: ", Listed(devices)));
}

absl::StatusOr<CudaChoice> ChooseCuda(const Config& config) {
  TETRAD_ASSIGN_OR_RETURN(const cuda::CudaDriver driver, cuda::LoadCudaDriver());
  TETRAD_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> devices, cuda::ListDevices(driver));
  CudaChoice choice;
  choice.devices = devices.size();
  if (config.device == "auto" && !devices.empty()) {
    choice.device = devices.front();
  } else {
    TETRAD_ASSIGN_OR_RETURN(choice.device, PickCudaDevice(config.device, devices));
  }
  cuda::CudaDevice::Options options;
  options.uuid = choice.device.uuid;
  options.memory_bytes = config.memory_bytes;
  options.lanes = static_cast<int32_t>(config.lanes);
  options.max_in_flight = static_cast<int32_t>(config.max_in_flight);
  options.graph_bytes = config.graph_bytes;
  options.plan_bytes = config.plan_device_bytes;
  choice.factory =
      [driver, options](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
    auto device = cuda::CudaDevice::Create(driver, options, std::move(wake));
    if (!device.ok()) return Named(options.uuid, device.status());
    return *std::move(device);
  };
  return choice;
}

}  // namespace tetrad
