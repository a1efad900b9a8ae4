// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which GPU --device means, in builds that have CUDA devices.
//
// FAILED_PRECONDITION: no driver, one that is too old, or no such device here;
// INVALID_ARGUMENT: the text can mean no device, or means several. Messages list
// the devices there are.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "engine/cuda/cuda_device.h"
#include "server/config.h"

namespace tetrad {

// `wanted` is cuda:all, or cuda: and a UUID or the beginning of one.
absl::StatusOr<cuda::DeviceInfo> PickCudaDevice(std::string_view wanted,
                                                std::span<const cuda::DeviceInfo> devices);

struct CudaChoice {
  std::function<absl::StatusOr<std::unique_ptr<Device>>(std::function<void()> wake)> factory;
  cuda::DeviceInfo device;
  size_t devices = 0;  // to choose from
};

// `wanted` as above, or auto: the first device.
absl::StatusOr<CudaChoice> ChooseCuda(const Config& config);

}  // namespace tetrad
