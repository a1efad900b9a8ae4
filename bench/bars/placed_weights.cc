// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/placed_weights.h"

#include <cstdint>
#include <span>

#include "engine/packing_batches.h"
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
  TETRAD_RETURN_IF_ERROR(limits.packs_weights ? placed->WriteAndPack(image) : placed->Write(image));
  TETRAD_ASSIGN_OR_RETURN(placed->alpha_,
                          PlaceBytes(device, std::as_bytes(std::span(image.alpha))));
  return placed;
}

PlacedWeights::~PlacedWeights() {
  for (BlockRef* block : {&b_, &b_scales_, &alpha_}) Release(device_, *block);
}

absl::Status PlacedWeights::Write(const WeightsImage& image) {
  scale_layout_ = image.scale_layout;
  TETRAD_ASSIGN_OR_RETURN(b_, PlaceBytes(device_, image.codes));
  TETRAD_ASSIGN_OR_RETURN(b_scales_, PlaceBytes(device_, image.scales));
  return absl::OkStatus();
}

absl::Status PlacedWeights::WriteAndPack(const WeightsImage& image) {
  const PackingBatches batches(image.groups, image.scale_layout);
  // Packed they take what both take, or more.
  TETRAD_ASSIGN_OR_RETURN(const Allocation memory, device_.Allocate(batches.packed_bytes()));
  b_ = {memory.id, 0, batches.packed_bytes()};
  scale_layout_ = ScaleLayout::kPacked;
  const int64_t codes = batches.code_bytes();
  TETRAD_RETURN_IF_ERROR(device_.Write(memory.id, 0, image.codes));
  TETRAD_RETURN_IF_ERROR(device_.Write(memory.id, codes, image.scales));
  TETRAD_ASSIGN_OR_RETURN(const Allocation scratch, device_.Allocate(batches.scratch_bytes()));
  absl::Status packed = device_.PackWeights({.groups = image.groups,
                                             .scale_layout = image.scale_layout,
                                             .memory = b_,
                                             .scales = codes,
                                             .scratch = {scratch.id, 0, scratch.bytes}});
  packed.Update(device_.Free(scratch.id));
  return packed;
}

}  // namespace tetrad::bars
