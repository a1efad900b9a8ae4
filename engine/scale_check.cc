// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scale_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/illegal_scale.h"
#include "engine/support/status_macros.h"
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

// Bytes from `offset` of the plane of one group.
absl::Status CheckPlane(ScaleLayout layout, int64_t group, const GroupDims& dims, int64_t offset,
                        std::span<std::byte> data) {
  const auto [n, k] = dims;
  const bool has_padding =
      layout == ScaleLayout::kBlocked && (n % kScaleTileRows != 0 || k % 64 != 0);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data.data()), data.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    // Legal bytes need no look at where they are, except to clear padding.
    if (!has_padding) i += FindIllegalScale(bytes.subspan(i));
    if (i == bytes.size()) break;
    const uint8_t byte = bytes[i];
    if (byte == 0) continue;
    const Place place = PlaceOf(layout, offset + static_cast<int64_t>(i), k);
    if (place.row >= n || place.block >= k / kScaleBlock) {
      data[i] = std::byte{0};
    } else if (byte >= kUe4m3Nan) {
      return FieldError({"chunk.data", absl::StrCat("0x", absl::Hex(byte, absl::kZeroPad2)),
                         "0x00 to 0x7E", group},
                        Reason::kIllegalScale,
                        absl::StrCat("scales: group ", group, " row ", place.row, " block ",
                                     place.block, ": byte 0x", absl::Hex(byte, absl::kZeroPad2),
                                     byte == kUe4m3Nan ? " is NaN" : " has the sign bit set"));
    }
  }
  return absl::OkStatus();
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

absl::Status CheckScales(std::span<const GroupDims> groups, ScaleLayout layout,
                         std::span<const int64_t> planes, int64_t offset,
                         std::span<std::byte> data) {
  size_t done = 0;
  const auto first = std::upper_bound(planes.begin(), planes.end(), offset) - planes.begin() - 1;
  for (size_t g = static_cast<size_t>(first); g < groups.size() && done < data.size(); ++g) {
    const int64_t begin = offset + static_cast<int64_t>(done);
    const size_t count =
        std::min<size_t>(data.size() - done, static_cast<size_t>(planes[g + 1] - begin));
    TETRAD_RETURN_IF_ERROR(CheckPlane(layout, static_cast<int64_t>(g), groups[g], begin - planes[g],
                                      data.subspan(done, count)));
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace tetrad
