// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper GEMM of a simulated driver (tests only), as kernels/sm90/gemm.h describes
// it: what a CTA would fetch and write, tile by tile, with the CPU's arithmetic. So
// exact data give the same bits as on a device. With device-side M it makes the same
// lists in the same scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/simulated_driver/view.h"
#include "kernels/problem.h"
#include "kernels/sm90/gemm.h"

namespace tetrad::cuda::simulated {

// `type`: of the tokens that the entry is compiled for. The first byte of output, if any.
std::byte* RunHopperGemm(const sm90::Instance& instance, ActivationType type,
                         const sm90::GemmArguments& arguments, int64_t ctas, View& view);

}  // namespace tetrad::cuda::simulated
