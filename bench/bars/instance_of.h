// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which instances of the Hopper GEMM there are, which one a plan uses, and plans
// that use another than the one that was chosen for them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "kernels/sm90/instances.h"

namespace tetrad::bars {

// "fp16.mixed", ...: type of the tokens and name; of a plan without, that of its kernel.
std::string VariantOf(const Plan& plan);
std::vector<std::string> AllVariants();

// Lays the plan's tiles out again for another instance, as the engine would had it
// been chosen. The plan is of the Hopper kernel; `multiprocessors` of its device.
void UseInstance(const sm90::Instance& instance, int32_t multiprocessors, Plan& plan);

}  // namespace tetrad::bars
