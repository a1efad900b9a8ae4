// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The product of the simulated device: a hash of all that a real product
// depends on, in place of arithmetic. A pure function, so that the world can
// tell from what a client sent what must come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/signature.h"

namespace tetrad::simulation {

// `alpha`, `row_scale` and `m_values` as bytes, since device memory has no types.
struct ProductOperands {
  std::span<const std::byte> a, a_scales, b, b_scales, alpha, row_scale, m_values;
};

// Writes the elements of live rows, as `layout` has them, and nothing else.
// Returns the error word; counts out of range write nothing.
uint32_t Product(const Signature& signature, const OperandLayout& layout,
                 const ProductOperands& operands, std::span<std::byte> c);

}  // namespace tetrad::simulation
