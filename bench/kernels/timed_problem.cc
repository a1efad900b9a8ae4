// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/timed_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "bench/kernels/grouped_data.h"
#include "bench/kernels/rotation.h"

namespace tetrad::bars {
namespace {

constexpr uint64_t kWeightSeed = 1, kActivationSeed = 100, kSampleSeed = 7;
constexpr int64_t kSamples = 256;
// Of no device: only how many calls a graph makes follows from them.
constexpr DeviceRates kAssumedRates{.flops_per_second = 9e14, .read_bytes_per_second = 5e12};

Signature StackedSignature(std::span<const GroupShape> groups, ActivationType activations) {
  Signature signature;
  signature.types.a_type = activations;
  if (activations == ActivationType::kNvfp4) {
    signature.types.a_scale_layout = ScaleLayout::kBlocked;
  }
  signature.form = GroupForm::kStacked;
  signature.groups.assign(groups.begin(), groups.end());
  return signature;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShapeSets>> ShapeSets::Make(Gpu& gpu,
                                                           std::span<const GroupShape> groups,
                                                           int threads) {
  std::unique_ptr<ShapeSets> sets(new ShapeSets(groups, threads));
  sets->image_ = MakeWeights(groups, kWeightSeed, threads);
  const double bytes =
      ComputeFloor(StackedSignature(groups, ActivationType::kNvfp4), kAssumedRates).bytes;
  for (int set = 0; set < SetsFor(bytes); ++set) {
    TETRAD_ASSIGN_OR_RETURN(
        sets->weights_.emplace_back(),
        PlacedWeights::Place(gpu.device(), gpu.device().limits(), sets->image_));
  }
  return sets;
}

absl::StatusOr<std::unique_ptr<TimedProblem>> TimedProblem::Make(Gpu& gpu, const ShapeSets& sets,
                                                                 const TimedOptions& options) {
  std::unique_ptr<TimedProblem> timed(new TimedProblem(gpu, sets));
  TETRAD_RETURN_IF_ERROR(timed->Place(options));
  TETRAD_ASSIGN_OR_RETURN(timed->cold_, timed->Capture(timed->problems_.size()));
  return timed;
}

absl::Status TimedProblem::Place(const TimedOptions& options) {
  const DeviceLimits& limits = gpu_.device().limits();
  Signature signature = StackedSignature(sets_.groups(), options.activations);
  TETRAD_ASSIGN_OR_RETURN(Plan exact, PlanFor(limits, signature, *sets_.weights().front()));
  exact_ = std::make_unique<Plan>(std::move(exact));
  image_ = MakeActivations(*exact_, kActivationSeed, sets_.threads());
  if (options.device_m) {
    if (options.activations == ActivationType::kNvfp4) {
      return absl::UnimplementedError("device-side M is timed with 16-bit activations");
    }
    signature.m_source = MSource::kCounts;
    signature.capacity_rows = exact_->layout.rows;
    for (GroupShape& group : signature.groups) {
      image_.m_values.push_back(group.m);
      group.m = 0;
    }
  }
  TETRAD_ASSIGN_OR_RETURN(Plan timed, PlanFor(limits, signature, *sets_.weights().front()));
  const auto plan = std::make_shared<const Plan>(std::move(timed));
  for (const auto& weights : sets_.weights()) {
    TETRAD_ASSIGN_OR_RETURN(auto problem, PlacedProblem::Place(gpu_.device(), plan, weights));
    TETRAD_RETURN_IF_ERROR(options.device_m ? WriteReserved(*problem)
                                            : problem->WriteActivations(image_));
    problems_.push_back(std::move(problem));
  }
  const double least_us = ComputeFloor(exact_->signature, kAssumedRates).floor_us();
  calls_ = CallsFor(static_cast<int>(problems_.size()), least_us);
  return absl::OkStatus();
}

// Only the live rows: what is reserved is far more.
absl::Status TimedProblem::WriteReserved(PlacedProblem& problem) {
  const Signature& exact = exact_->signature;
  for (size_t g = 0; g < exact.groups.size(); ++g) {
    const GroupShape& shape = exact.groups[g];
    if (shape.m == 0) continue;
    const int64_t row_bytes = ActivationBytes(exact.types.a_type, 1, shape.k);
    const auto rows = std::span(image_.a).subspan(static_cast<size_t>(exact_->layout.groups[g].a),
                                                  static_cast<size_t>(shape.m * row_bytes));
    const int64_t at = static_cast<int64_t>(g) * exact_->layout.rows * row_bytes;
    TETRAD_RETURN_IF_ERROR(gpu_.device().Write(problem.blocks().a.allocation, at, rows));
  }
  return problem.WriteActivations({.a = {}, .a_scales = {}, .m_values = image_.m_values});
}

absl::StatusOr<GpuGraph> TimedProblem::Capture(size_t sets) {
  // What a kernel needs at its first launch, a capture must not do.
  TETRAD_RETURN_IF_ERROR(gpu_.device().LaunchEagerly(problems_.front()->binding()));
  return gpu_.Capture([&](CUstream stream) {
    for (int call = 0; call < calls_; ++call) {
      TETRAD_RETURN_IF_ERROR(
          gpu_.device().LaunchOn(stream, problems_[static_cast<size_t>(call) % sets]->binding()));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<double> TimedProblem::Time(const GpuGraph& graph) {
  TETRAD_ASSIGN_OR_RETURN(const double us, gpu_.Time(graph));
  return us / calls_;
}

absl::StatusOr<double> TimedProblem::WarmUs() {
  if (warm_.exec() == nullptr) {
    TETRAD_ASSIGN_OR_RETURN(warm_, Capture(1));
  }
  return Time(warm_);
}

absl::Status TimedProblem::Check() {
  PlacedProblem* const checked[] = {problems_.front().get(), problems_.back().get()};
  for (PlacedProblem* problem : checked) TETRAD_RETURN_IF_ERROR(problem->ClearOutput());
  TETRAD_RETURN_IF_ERROR(ColdUs().status());
  for (const PlacedProblem* problem : checked) {
    std::vector<std::byte> output;
    TETRAD_RETURN_IF_ERROR(problem->ReadOutput(output));
    if (plan().signature.device_m()) {
      // To where the exact plan has the rows.
      std::vector<std::byte> dense(static_cast<size_t>(exact_->layout.c_bytes));
      const int64_t row_bytes = plan().layout.c_stride * 2;
      for (size_t g = 0; g < sets_.groups().size(); ++g) {
        std::copy_n(output.begin() + static_cast<int64_t>(g) * exact_->layout.rows * row_bytes,
                    sets_.groups()[g].m * row_bytes, dense.begin() + exact_->layout.groups[g].c);
      }
      output = std::move(dense);
    }
    std::string first;
    const int64_t wrong =
        CountWrong(*exact_, sets_.image(), image_, output, kSamples, kSampleSeed, first);
    if (wrong > 0) {
      return absl::DataLossError(absl::StrCat(wrong, " of ", kSamples,
                                              " outputs that were looked at "
                                              "are wrong; first: ",
                                              first));
    }
  }
  return absl::OkStatus();
}

}  // namespace tetrad::bars
