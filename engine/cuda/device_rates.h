// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The rates of a GPU that floors are computed from: memory read and 16-bit
// tensor-core arithmetic, each the best of a few measurements.
#pragma once

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/own_memory.h"
#include "engine/floor.h"

namespace tetrad::cuda {

// Takes and gives back up to 1 GiB of `memory`; less where it lacks.
absl::StatusOr<DeviceRates> MeasureRates(CudaContext& context, const KernelLibrary& library,
                                         CudaMemory& memory, int32_t multiprocessors);

}  // namespace tetrad::cuda
