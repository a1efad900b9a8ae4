// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scale_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/weights.h"

namespace tetrad {
namespace {

struct Place {
  int64_t row;
  int64_t block;
};

// The inverse of ScaleOffset() within one plane.
Place PlaceOf(ScaleLayout layout, int64_t offset, int64_t k) {
  if (layout == ScaleLayout::kLinear)
    return {offset / (k / kScaleBlock), offset % (k / kScaleBlock)};
  const int64_t tile = offset / kScaleTileBytes, within = offset % kScaleTileBytes;
  const int64_t tiles_along_k = CeilDiv(k, 64);
  return {tile / tiles_along_k * kScaleTileRows + within / 16 + within % 16 / 4 * 32,
          tile % tiles_along_k * 4 + within % 4};
}

}  // namespace

std::vector<int64_t> ScalePlaneOffsets(std::span<const GroupDims> groups, ScaleLayout layout) {
  std::vector<int64_t> offsets = {0};
  offsets.reserve(groups.size() + 1);
  for (const auto [n, k] : groups) {
    offsets.push_back(offsets.back() + ScalePlaneBytes(layout, n, k));
  }
  return offsets;
}

absl::StatusOr<ScaleChunk> CheckScales(std::span<const GroupDims> groups, ScaleLayout layout,
                                       std::span<const int64_t> planes, int64_t offset,
                                       std::span<const std::byte> data) {
  ScaleChunk chunk;
  size_t done = 0;
  const auto first = std::upper_bound(planes.begin(), planes.end(), offset) - planes.begin() - 1;
  for (size_t g = static_cast<size_t>(first); g < groups.size() && done < data.size(); ++g) {
    const auto [n, k] = groups[g];
    const int64_t plane_begin = planes[g], plane_end = planes[g + 1];
    while (done < data.size() && offset + static_cast<int64_t>(done) < plane_end) {
      const int64_t left = plane_end - offset - static_cast<int64_t>(done);
      const size_t count = std::min<size_t>(data.size() - done, static_cast<size_t>(left));
      const auto run = data.subspan(done, count);
      const int64_t run_begin = offset + static_cast<int64_t>(done) - plane_begin;
      // Legal bytes need no look at where they are, except to clear padding.
      const bool has_padding = layout == ScaleLayout::kBlocked && (n % 128 != 0 || k % 64 != 0);
      for (size_t i = 0; i < count; ++i) {
        const uint8_t byte = std::to_integer<uint8_t>(run[i]);
        const bool legal = byte < kUe4m3Nan;
        if (legal && (!has_padding || byte == 0)) continue;
        const Place place = PlaceOf(layout, run_begin + static_cast<int64_t>(i), k);
        if (place.row < n && place.block < k / kScaleBlock) {
          if (legal) continue;
          return absl::InvalidArgumentError(
              absl::StrCat("scales: group ", g, " row ", place.row, " block ", place.block,
                           ": byte 0x", absl::Hex(byte, absl::kZeroPad2),
                           byte == kUe4m3Nan ? " is NaN" : " has the sign bit set"));
        }
        if (chunk.sanitized.empty()) chunk.sanitized.assign(data.begin(), data.end());
        chunk.sanitized[done + i] = std::byte{0};
      }
      done += count;
    }
  }
  return chunk;
}

}  // namespace tetrad
