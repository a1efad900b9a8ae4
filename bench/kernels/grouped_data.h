// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Operands for measurements, made fast: all 16 codes, scales uniform over
// [0.25, 2) and rounded to UE4M3, 16-bit operands of such numbers dequantised, so
// that no unit of the device sees kinder data than real weights are. And the
// check that what was timed was right: a sample of outputs against FP64.
//
// Byte i is a function of (seed, i) alone, whatever the number of threads. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/bars/placed_problem.h"
#include "bench/bars/placed_weights.h"
#include "engine/plan.h"

namespace tetrad::bars {

std::vector<std::byte> MakeCodes(int64_t bytes, uint64_t seed, int threads);
std::vector<std::byte> MakeScales(int64_t bytes, uint64_t seed, int threads);
// Codes row by row, their scales ScaleLayout::kLinear; FP16 or BF16, exact.
std::vector<std::byte> Dequantise(ActivationType to, std::span<const std::byte> codes,
                                  std::span<const std::byte> scales, int threads);

// Of any groups; scales linear, alpha 1.
WeightsImage MakeWeights(std::span<const GroupShape> shapes, uint64_t seed, int threads);
// Of any plan with host M.
ActivationImage MakeActivations(const Plan& plan, uint64_t seed, int threads);

// How many of `samples` elements of the output, drawn by `seed`, are further from the
// FP64 product than rounding explains; the first of them in `first`. The plan has host
// M and FP16 output; `weights` has linear scales.
int64_t CountWrong(const Plan& plan, const WeightsImage& weights, const ActivationImage& a,
                   std::span<const std::byte> output, int64_t samples, uint64_t seed,
                   std::string& first);

}  // namespace tetrad::bars
