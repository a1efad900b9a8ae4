// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlacedProblem: seeded operands of one grouped GEMM in the memory of a device,
// bound, for figures that launch without an engine.
//
// The device must outlive it; nothing may be under way when it goes. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "kernels/sample.h"

namespace tetrad::bars {

// The bytes of a plan's activations, as they lie in device memory.
struct ActivationImage {
  std::vector<std::byte> a;
  std::vector<std::byte> a_scales;
};

class PlacedProblem {
 public:
  // The plan is one for `limits`, which may be narrower than the device's. Form
  // kSeparate, no row scales.
  static absl::StatusOr<std::unique_ptr<PlacedProblem>> Place(Device& device,
                                                              const DeviceLimits& limits,
                                                              std::span<const GroupShape> shapes,
                                                              const SampleOptions& options);
  ~PlacedProblem();
  PlacedProblem(const PlacedProblem&) = delete;

  const Plan& plan() const { return *plan_; }
  BindingId binding() const { return binding_; }

  // Activations of another seed for the same weights.
  ActivationImage MakeActivations(uint64_t seed) const;
  absl::Status WriteActivations(const ActivationImage& image);
  absl::Status ReadOutput(std::vector<std::byte>& output) const;

  // Launches and spins until the completion is there.
  absl::StatusOr<Completion> Run();

 private:
  PlacedProblem(Device& device, std::span<const GroupShape> shapes, const SampleOptions& options)
      : device_(device), shapes_(shapes.begin(), shapes.end()), options_(options) {}
  absl::Status BuildAndPlace(const DeviceLimits& limits);
  absl::StatusOr<BlockRef> Allocate(int64_t bytes);
  ActivationImage ImageOf(const Operands& operands) const;
  absl::Status PlaceWeights(const Operands& operands);

  Device& device_;
  const std::vector<GroupShape> shapes_;
  const SampleOptions options_;
  std::shared_ptr<const Plan> plan_;
  OperandBlocks blocks_;
  std::vector<AllocationId> allocations_;
  BindingId binding_ = BindingId::kNone;
  uint64_t launches_ = 0;
};

}  // namespace tetrad::bars
