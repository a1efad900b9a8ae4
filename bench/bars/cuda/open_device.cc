// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/cuda/open_device.h"

#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad::bars {

absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> OpenCuda(const Setting& setting,
                                                           std::function<void()> wake,
                                                           bool portable_only) {
  if (setting.device != DeviceKind::kCuda) {
    return absl::FailedPreconditionError("this figure needs a CUDA device");
  }
  TETRAD_ASSIGN_OR_RETURN(const cuda::CudaDriver driver, cuda::LoadCudaDriver());
  return cuda::CudaDevice::Create(
      driver, {.uuid = setting.uuid, .measure_rates = false, .portable_only = portable_only},
      std::move(wake));
}

}  // namespace tetrad::bars
