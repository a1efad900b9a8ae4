// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/emulation/driver.h"
#include "kernels/cuda/gpu_test_device.h"

namespace tetrad::cuda {

absl::StatusOr<CudaDriver> TestDriver() { return emulation::EmulatedDriver(); }

Effort TestEffort() { return Effort::kSample; }

}  // namespace tetrad::cuda
