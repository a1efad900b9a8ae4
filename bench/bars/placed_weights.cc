// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/placed_weights.h"

#include <cstdint>
#include <span>
#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

absl::StatusOr<BlockRef> PlaceBytes(Device& device, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation, device.Allocate(size));
  const absl::Status written = device.Write(allocation.id, 0, bytes);
  if (written.ok()) return BlockRef{allocation.id, 0, size};
  (void)device.Free(allocation.id);
  return written;
}

void Release(Device& device, BlockRef& block) {
  if (block.allocation != AllocationId::kNone) (void)device.Free(block.allocation);
  block = {};
}

}  // namespace

absl::StatusOr<std::shared_ptr<PlacedWeights>> PlacedWeights::Place(Device& device,
                                                                    const DeviceLimits& limits,
                                                                    const WeightsImage& image) {
  std::shared_ptr<PlacedWeights> placed(new PlacedWeights(device));
  TETRAD_RETURN_IF_ERROR(placed->Write(image));
  if (limits.packs_weights) TETRAD_RETURN_IF_ERROR(placed->Pack(image));
  return placed;
}

PlacedWeights::~PlacedWeights() {
  for (BlockRef* block : {&b_, &b_scales_, &alpha_}) Release(device_, *block);
}

absl::Status PlacedWeights::Write(const WeightsImage& image) {
  scale_layout_ = image.scale_layout;
  TETRAD_ASSIGN_OR_RETURN(b_, PlaceBytes(device_, image.codes));
  TETRAD_ASSIGN_OR_RETURN(b_scales_, PlaceBytes(device_, image.scales));
  TETRAD_ASSIGN_OR_RETURN(alpha_, PlaceBytes(device_, std::as_bytes(std::span(image.alpha))));
  return absl::OkStatus();
}

absl::Status PlacedWeights::Pack(const WeightsImage& image) {
  const int64_t bytes = PackedWeightBytes(image.groups);
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation, device_.Allocate(bytes));
  BlockRef packed{allocation.id, 0, bytes};
  absl::Status status = device_.PackWeights({.groups = image.groups,
                                             .scale_layout = image.scale_layout,
                                             .codes = b_,
                                             .scales = b_scales_,
                                             .packed = packed});
  std::swap(packed, b_);
  Release(device_, packed);  // the plain codes
  Release(device_, b_scales_);
  scale_layout_ = ScaleLayout::kPacked;
  return status;
}

}  // namespace tetrad::bars
