// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CheckScales: legality of the scale bytes of weights, piece by piece and in
// place.
//
// A weight scale must be a positive-or-zero number: bytes 0x7F (NaN) and above
// (sign bit set) are refused with group, row and block. Padding of blocked
// planes may hold anything on arrival and is zero afterwards. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "kernels/nvfp4.h"

namespace tetrad {

struct GroupDims;

// Where the plane of each group begins, and the last one ends.
std::vector<int64_t> ScalePlaneOffsets(std::span<const GroupDims> groups, ScaleLayout layout);

// `data` are the bytes from `offset` of the planes of `groups`, concatenated; a
// range that must lie within them and may begin and end anywhere. `planes` are
// their ScalePlaneOffsets(). Clears what is padding.
absl::Status CheckScales(std::span<const GroupDims> groups, ScaleLayout layout,
                         std::span<const int64_t> planes, int64_t offset,
                         std::span<std::byte> data);

}  // namespace tetrad
