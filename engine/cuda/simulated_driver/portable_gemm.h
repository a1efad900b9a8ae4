// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The portable GEMM of a simulated driver (tests only), as kernels/cuda/portable.h
// describes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/simulated_driver/view.h"
#include "kernels/cuda/launch.h"

namespace tetrad::cuda::simulated {

// The first byte of output, if any.
std::byte* RunPortableGemm(const LaunchArguments& arguments, int64_t ctas, View& view);

}  // namespace tetrad::cuda::simulated
