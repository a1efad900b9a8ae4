// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device that figures are measured on, for those that need more of it
// than every device has.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "bench/bars/figure.h"
#include "engine/cuda/cuda_device.h"

namespace tetrad::bars {

// The setting's, or the first if it names none; its rates not measured.
// `portable_only`: without the kernels of its own architecture.
// FAILED_PRECONDITION with a setting that is not of CUDA.
absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> OpenCuda(const Setting& setting,
                                                           std::function<void()> wake,
                                                           bool portable_only = false);

}  // namespace tetrad::bars
