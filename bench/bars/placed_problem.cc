// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/placed_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad::bars {

WeightsImage SampleWeights(std::span<const GroupShape> shapes, const SampleOptions& options) {
  const Operands operands(shapes, options);
  WeightsImage image{.scale_layout = options.types.b_scale_layout};
  const auto append = [](std::vector<std::byte>& to, const uint8_t* from, int64_t bytes) {
    const auto* const begin = reinterpret_cast<const std::byte*>(from);
    to.insert(to.end(), begin, begin + bytes);
  };
  for (const GroupProblem& group : operands.groups()) {
    image.groups.push_back({group.n, group.k});
    append(image.codes, group.b, CodeBytes(group.n, group.k));
    append(image.scales, group.b_scales, ScalePlaneBytes(image.scale_layout, group.n, group.k));
    image.alpha.push_back(group.alpha);
  }
  return image;
}

ActivationImage SampleActivations(const Plan& plan, const SampleOptions& options) {
  const OperandLayout& layout = plan.layout;
  const ProblemTypes& types = plan.signature.types;
  const Operands operands(plan.signature.groups, options);
  ActivationImage image{
      .a = std::vector<std::byte>(static_cast<size_t>(layout.a_bytes)),
      .a_scales = std::vector<std::byte>(static_cast<size_t>(layout.a_scale_bytes))};
  for (size_t g = 0; g < plan.signature.groups.size(); ++g) {
    const GroupProblem& group = operands.groups()[g];
    const auto* const a = reinterpret_cast<const std::byte*>(group.a);
    std::copy_n(a, ActivationBytes(types.a_type, group.m, group.k),
                image.a.begin() + layout.groups[g].a);
    if (image.a_scales.empty()) continue;
    const auto* const scales = reinterpret_cast<const std::byte*>(group.a_scales);
    std::copy_n(scales, ScalePlaneBytes(types.a_scale_layout, group.m, group.k),
                image.a_scales.begin() + layout.groups[g].a_scales);
  }
  return image;
}

absl::StatusOr<Plan> PlanFor(const DeviceLimits& limits, Signature signature,
                             const PlacedWeights& weights) {
  signature.types.b_scale_layout = weights.scale_layout();
  signature.device = limits.uuid;
  TETRAD_ASSIGN_OR_RETURN(signature, Canonicalize(std::move(signature)));
  return BuildPlan(signature, limits);
}

absl::StatusOr<std::unique_ptr<PlacedProblem>> PlacedProblem::Place(
    Device& device, std::shared_ptr<const Plan> plan,
    std::shared_ptr<const PlacedWeights> weights) {
  std::unique_ptr<PlacedProblem> placed(
      new PlacedProblem(device, std::move(plan), std::move(weights)));
  TETRAD_RETURN_IF_ERROR(placed->PlaceOperands());
  return placed;
}

absl::StatusOr<std::unique_ptr<PlacedProblem>> PlacedProblem::Place(
    Device& device, const DeviceLimits& limits, Signature signature,
    std::shared_ptr<const PlacedWeights> weights) {
  TETRAD_ASSIGN_OR_RETURN(Plan plan, PlanFor(limits, std::move(signature), *weights));
  return Place(device, std::make_shared<const Plan>(std::move(plan)), std::move(weights));
}

absl::StatusOr<std::unique_ptr<PlacedProblem>> PlacedProblem::Place(
    Device& device, const DeviceLimits& limits, std::span<const GroupShape> shapes,
    const SampleOptions& options) {
  TETRAD_ASSIGN_OR_RETURN(auto weights,
                          PlacedWeights::Place(device, limits, SampleWeights(shapes, options)));
  Signature signature;
  signature.types = options.types;
  signature.groups.assign(shapes.begin(), shapes.end());
  TETRAD_ASSIGN_OR_RETURN(auto placed,
                          Place(device, limits, std::move(signature), std::move(weights)));
  TETRAD_RETURN_IF_ERROR(placed->WriteActivations(SampleActivations(placed->plan(), options)));
  return placed;
}

PlacedProblem::~PlacedProblem() {
  if (binding_ != BindingId::kNone) (void)device_.Unbind(binding_);
  for (const AllocationId id : allocations_) (void)device_.Free(id);
}

absl::Status PlacedProblem::PlaceOperands() {
  const OperandLayout& layout = plan_->layout;
  blocks_.b = weights_->b();
  blocks_.b_scales = weights_->b_scales();
  blocks_.alpha = weights_->alpha();
  TETRAD_ASSIGN_OR_RETURN(blocks_.a, Allocate(layout.a_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.a_scales, Allocate(layout.a_scale_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.c, Allocate(layout.c_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.m_values,
                          Allocate(layout.m_values * static_cast<int64_t>(sizeof(int32_t))));
  TETRAD_ASSIGN_OR_RETURN(binding_, device_.Bind(plan_, blocks_));
  return absl::OkStatus();
}

absl::StatusOr<BlockRef> PlacedProblem::Allocate(int64_t bytes) {
  if (bytes == 0) return BlockRef{};
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation, device_.Allocate(bytes));
  allocations_.push_back(allocation.id);
  return BlockRef{allocation.id, 0, bytes};
}

absl::Status PlacedProblem::WriteActivations(const ActivationImage& image) {
  const auto write = [this](const BlockRef& block, std::span<const std::byte> bytes) {
    return bytes.empty() ? absl::OkStatus() : device_.Write(block.allocation, 0, bytes);
  };
  TETRAD_RETURN_IF_ERROR(write(blocks_.a, image.a));
  TETRAD_RETURN_IF_ERROR(write(blocks_.a_scales, image.a_scales));
  return write(blocks_.m_values, std::as_bytes(std::span(image.m_values)));
}

absl::Status PlacedProblem::ClearOutput() {
  return device_.Clear(blocks_.c.allocation, 0, blocks_.c.bytes);
}

absl::Status PlacedProblem::ReadOutput(std::vector<std::byte>& output) const {
  output.resize(static_cast<size_t>(blocks_.c.bytes));
  return device_.Read(blocks_.c.allocation, 0, output);
}

absl::StatusOr<Completion> PlacedProblem::Run() {
  TETRAD_RETURN_IF_ERROR(device_.Launch(LaneId{0}, binding_, ++launches_));
  Completion completion;
  while (device_.Poll({&completion, 1}) == 0) TETRAD_RETURN_IF_ERROR(device_.health());
  if (completion.ticket != launches_ || completion.code != absl::StatusCode::kOk ||
      completion.error_word != 0) {
    return absl::InternalError(absl::StrCat(
        "launch ", launches_, " completed as ticket ", completion.ticket, " with code ",
        static_cast<int>(completion.code), ", error word ", completion.error_word));
  }
  return completion;
}

}  // namespace tetrad::bars
