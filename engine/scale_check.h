// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CheckScales: legality of the scale bytes of weights, chunk by chunk.
//
// A weight scale must be a positive-or-zero number: bytes 0x7F (NaN) and above
// (sign bit set) are refused with group, row and block. Padding of blocked
// planes may hold anything on arrival and is zero afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/nvfp4.h"

namespace tetrad {

struct GroupDims;

struct ScaleChunk {
  std::vector<std::byte> sanitized;  // the chunk with padding cleared; empty: as it came
};

// Where the plane of each group begins, and the last one ends.
std::vector<int64_t> ScalePlaneOffsets(std::span<const GroupDims> groups, ScaleLayout layout);

// `data` are the bytes from `offset` of the planes of `groups`, concatenated;
// the range must lie within them. `planes` are their ScalePlaneOffsets().
absl::StatusOr<ScaleChunk> CheckScales(std::span<const GroupDims> groups, ScaleLayout layout,
                                       std::span<const int64_t> planes, int64_t offset,
                                       std::span<const std::byte> data);

}  // namespace tetrad
