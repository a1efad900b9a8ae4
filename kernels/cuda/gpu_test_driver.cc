// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gpu_test_device.h"

namespace tetrad::cuda {

absl::StatusOr<CudaDriver> TestDriver() { return LoadCudaDriver(); }

Effort TestEffort() { return Effort::kAll; }

}  // namespace tetrad::cuda
