// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Dtype: the element types of the safetensors format. Sizes are in bits because some are smaller
// than a byte. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tetrad {

enum class Dtype : uint8_t {
  kF4,
  kF6E2m3,
  kF6E3m2,
  kBool,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kF8E8m0,
  kF8E4m3Fnuz,
  kF8E5m2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// The name the format gives it, as "F8_E4M3".
std::string_view DtypeName(Dtype dtype);

int DtypeBits(Dtype dtype);

// The type of that name, letter case included.
std::optional<Dtype> ParseDtype(std::string_view name);

}  // namespace tetrad
