// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/placed_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad::bars {

absl::StatusOr<std::unique_ptr<PlacedProblem>> PlacedProblem::Place(
    Device& device, const DeviceLimits& limits, std::span<const GroupShape> shapes,
    const SampleOptions& options) {
  std::unique_ptr<PlacedProblem> placed(new PlacedProblem(device, shapes, options));
  TETRAD_RETURN_IF_ERROR(placed->BuildAndPlace(limits));
  return placed;
}

PlacedProblem::~PlacedProblem() {
  if (binding_ != BindingId::kNone) (void)device_.Unbind(binding_);
  for (const AllocationId id : allocations_) (void)device_.Free(id);
}

absl::Status PlacedProblem::BuildAndPlace(const DeviceLimits& limits) {
  Signature signature;
  signature.types = options_.types;
  signature.groups = shapes_;
  signature.device = limits.uuid;
  TETRAD_ASSIGN_OR_RETURN(signature, Canonicalize(std::move(signature)));
  TETRAD_ASSIGN_OR_RETURN(Plan plan, BuildPlan(signature, limits));
  plan_ = std::make_shared<const Plan>(std::move(plan));

  const OperandLayout& layout = plan_->layout;
  TETRAD_ASSIGN_OR_RETURN(blocks_.a, Allocate(layout.a_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.a_scales, Allocate(layout.a_scale_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.b, Allocate(WeightCodeBytes(signature)));
  TETRAD_ASSIGN_OR_RETURN(blocks_.b_scales, Allocate(WeightScaleBytes(signature)));
  TETRAD_ASSIGN_OR_RETURN(blocks_.c, Allocate(layout.c_bytes));
  TETRAD_ASSIGN_OR_RETURN(blocks_.alpha,
                          Allocate(static_cast<int64_t>(shapes_.size() * sizeof(float))));
  const Operands operands(shapes_, options_);
  TETRAD_RETURN_IF_ERROR(PlaceWeights(operands));
  TETRAD_RETURN_IF_ERROR(WriteActivations(ImageOf(operands)));
  TETRAD_ASSIGN_OR_RETURN(binding_, device_.Bind(plan_, blocks_));
  return absl::OkStatus();
}

absl::StatusOr<BlockRef> PlacedProblem::Allocate(int64_t bytes) {
  if (bytes == 0) return BlockRef{};
  TETRAD_ASSIGN_OR_RETURN(const Allocation allocation, device_.Allocate(bytes));
  allocations_.push_back(allocation.id);
  return BlockRef{allocation.id, 0, bytes};
}

absl::Status PlacedProblem::PlaceWeights(const Operands& operands) {
  int64_t codes = 0, scales = 0;
  for (size_t g = 0; g < shapes_.size(); ++g) {
    const GroupProblem& group = operands.groups()[g];
    const auto write = [this](const BlockRef& block, int64_t offset, const void* data,
                              int64_t bytes) {
      return device_.Write(block.allocation, offset,
                           {static_cast<const std::byte*>(data), static_cast<size_t>(bytes)});
    };
    const int64_t code_bytes = CodeBytes(group.n, group.k);
    const int64_t scale_bytes = ScalePlaneBytes(options_.types.b_scale_layout, group.n, group.k);
    TETRAD_RETURN_IF_ERROR(write(blocks_.b, codes, group.b, code_bytes));
    TETRAD_RETURN_IF_ERROR(write(blocks_.b_scales, scales, group.b_scales, scale_bytes));
    TETRAD_RETURN_IF_ERROR(
        write(blocks_.alpha, static_cast<int64_t>(g * sizeof(float)), &group.alpha, sizeof(float)));
    codes += code_bytes;
    scales += scale_bytes;
  }
  return absl::OkStatus();
}

ActivationImage PlacedProblem::ImageOf(const Operands& operands) const {
  const OperandLayout& layout = plan_->layout;
  const ProblemTypes& types = options_.types;
  ActivationImage image{
      .a = std::vector<std::byte>(static_cast<size_t>(layout.a_bytes)),
      .a_scales = std::vector<std::byte>(static_cast<size_t>(layout.a_scale_bytes))};
  for (size_t g = 0; g < shapes_.size(); ++g) {
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

ActivationImage PlacedProblem::MakeActivations(uint64_t seed) const {
  SampleOptions options = options_;
  options.seed = seed;
  return ImageOf(Operands(shapes_, options));
}

absl::Status PlacedProblem::WriteActivations(const ActivationImage& image) {
  TETRAD_RETURN_IF_ERROR(device_.Write(blocks_.a.allocation, 0, image.a));
  if (image.a_scales.empty()) return absl::OkStatus();
  return device_.Write(blocks_.a_scales.allocation, 0, image.a_scales);
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
