// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FindIllegalScale: the first scale byte that no weight may have.
//
// Every scale of every weight is looked at when it is registered, beside copies
// that run at the speed of memory: so many bytes at a time, without a branch
// between them, is what a compiler makes vector code of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/nvfp4.h"

namespace tetrad {

// The position of the first NaN (0x7F) or byte with the sign bit set (0x80 and
// above); the size of `scales` if there is none.
inline size_t FindIllegalScale(std::span<const uint8_t> scales) {
  constexpr size_t kRun = 256;
  size_t at = 0;
  for (; scales.size() - at >= kRun; at += kRun) {
    uint8_t most = 0;
    for (size_t i = 0; i < kRun; ++i) most = std::max(most, scales[at + i]);
    if (most >= kUe4m3Nan) break;
  }
  while (at < scales.size() && scales[at] < kUe4m3Nan) ++at;
  return at;
}

}  // namespace tetrad
