// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlacedProblem: the operands of one grouped GEMM in the memory of a device,
// bound, for figures that launch without an engine.
//
// The device must outlive it; nothing may be under way when it goes. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "bench/bars/placed_weights.h"
#include "engine/device.h"
#include "kernels/sample.h"

namespace tetrad::bars {

// The bytes of a plan's activations, as they lie in device memory. What is empty
// is left as it is: zero at first.
struct ActivationImage {
  std::vector<std::byte> a;
  std::vector<std::byte> a_scales;
  std::vector<int32_t> m_values;  // device-side M
};

// Seeded operands as kernels/sample.h makes them. Form kSeparate.
WeightsImage SampleWeights(std::span<const GroupShape> shapes, const SampleOptions& options);
ActivationImage SampleActivations(const Plan& plan, const SampleOptions& options);

// A plan for these weights: device and layout of the weights' scales are set in the
// signature. `limits` may be narrower than the device's.
absl::StatusOr<Plan> PlanFor(const DeviceLimits& limits, Signature signature,
                             const PlacedWeights& weights);

class PlacedProblem {
 public:
  // No row scales. A device proves a plan once, however many problems share it.
  static absl::StatusOr<std::unique_ptr<PlacedProblem>> Place(
      Device& device, std::shared_ptr<const Plan> plan,
      std::shared_ptr<const PlacedWeights> weights);
  // Of PlanFor().
  static absl::StatusOr<std::unique_ptr<PlacedProblem>> Place(
      Device& device, const DeviceLimits& limits, Signature signature,
      std::shared_ptr<const PlacedWeights> weights);
  // Seeded operands of their own, form kSeparate.
  static absl::StatusOr<std::unique_ptr<PlacedProblem>> Place(Device& device,
                                                              const DeviceLimits& limits,
                                                              std::span<const GroupShape> shapes,
                                                              const SampleOptions& options);
  ~PlacedProblem();
  PlacedProblem(const PlacedProblem&) = delete;

  const Plan& plan() const { return *plan_; }
  BindingId binding() const { return binding_; }
  const OperandBlocks& blocks() const { return blocks_; }

  absl::Status WriteActivations(const ActivationImage& image);
  absl::Status ReadOutput(std::vector<std::byte>& output) const;
  absl::Status ClearOutput();

  // Launches and spins until the completion is there.
  absl::StatusOr<Completion> Run();

 private:
  PlacedProblem(Device& device, std::shared_ptr<const Plan> plan,
                std::shared_ptr<const PlacedWeights> weights)
      : device_(device), plan_(std::move(plan)), weights_(std::move(weights)) {}
  absl::Status PlaceOperands();
  absl::StatusOr<BlockRef> Allocate(int64_t bytes);

  Device& device_;
  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<const PlacedWeights> weights_;
  OperandBlocks blocks_;
  std::vector<AllocationId> allocations_;
  BindingId binding_ = BindingId::kNone;
  uint64_t launches_ = 0;
};

}  // namespace tetrad::bars
