// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random tensor maps for tests: legal ones, and ways to break exactly one rule,
// written from the driver's documentation (and the rules of tensor_map.h that it
// lacks) and independently of the check, so that the check (without a device) and the driver (with
// one) can be held to them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cuda/tensor_map.h"
#include "kernels/random.h"

namespace tetrad::cuda {

// Which types and swizzles a sample may have.
enum class TensorMapKinds : uint8_t {
  kHopper,  // element sizes of whole bytes, swizzles with 16-byte atoms
  kAll,
};

// Legal; every dimension's extent is stepped over by the next stride.
TensorMapSpec SampleTensorMap(Random& random, TensorMapKinds kinds);

struct TensorMapFault {
  std::string_view rule;
  std::string_view field;  // that a refusal names
  // Makes a legal `spec` break this rule and no other; false, and `spec` of no
  // further use, where that cannot be.
  bool (*inject)(TensorMapSpec& spec, Random& random);
};

std::span<const TensorMapFault> TensorMapFaults();

}  // namespace tetrad::cuda
