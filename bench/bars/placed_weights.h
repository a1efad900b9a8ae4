// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlacedWeights: the weights of one grouped GEMM in the memory of a device, in
// the form its kernels read (packed where the limits say so), for any number of
// problems that multiply by them.
//
// The device must outlive it; nothing may be under way when it goes. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "kernels/nvfp4.h"

namespace tetrad::bars {

// Weights as they are written: the groups concatenated.
struct WeightsImage {
  std::vector<GroupDims> groups;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<float> alpha;  // one a group
};

class PlacedWeights {
 public:
  static absl::StatusOr<std::shared_ptr<PlacedWeights>> Place(Device& device,
                                                              const DeviceLimits& limits,
                                                              const WeightsImage& image);
  ~PlacedWeights();
  PlacedWeights(const PlacedWeights&) = delete;

  // What a signature of these weights has as b_scale_layout.
  ScaleLayout scale_layout() const { return scale_layout_; }
  const BlockRef& b() const { return b_; }
  const BlockRef& b_scales() const { return b_scales_; }  // empty where they are packed
  const BlockRef& alpha() const { return alpha_; }

 private:
  explicit PlacedWeights(Device& device) : device_(device) {}
  absl::Status Write(const WeightsImage& image);
  absl::Status WriteAndPack(const WeightsImage& image);

  Device& device_;
  ScaleLayout scale_layout_ = ScaleLayout::kLinear;
  BlockRef b_, b_scales_, alpha_;
};

}  // namespace tetrad::bars
