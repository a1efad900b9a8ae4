// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a simulated driver (tests only) that form the operands of the
// Hopper GEMM: packing of weights (kernels/sm90/pack.h) and preparing of activations
// (kernels/sm90/prepare.h).
#pragma once

#include "engine/cuda/simulated_driver/view.h"
#include "kernels/sm90/pack.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::cuda::simulated {

void RunPack(const sm90::PackArguments& arguments, View& view);
void RunUnpack(const sm90::UnpackArguments& arguments, View& view);
void RunPrepare(const sm90::PrepareArguments& arguments, View& view);

}  // namespace tetrad::cuda::simulated
