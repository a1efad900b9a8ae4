// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The values behind Operands (sample.h): fills one group's operands with seeded
// data of a kind and chooses its alpha. Thread-safe on distinct groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/problem.h"
#include "kernels/random.h"
#include "kernels/sample.h"

namespace tetrad {

// Writable views of what a GroupProblem names.
struct Destination {
  uint8_t* a = nullptr;
  uint8_t* a_scales = nullptr;
  uint8_t* b = nullptr;
  uint8_t* b_scales = nullptr;
  float* row_scale = nullptr;
};

// Random bytes, one in four of them the scale NaN.
void FillJunk(Random& random, std::span<std::byte> bytes);

// Writes every live value of the group, and group->alpha.
void FillGroup(const ProblemTypes& types, DataKind kind, Random& random, const Destination& to,
               GroupProblem* group);

}  // namespace tetrad
