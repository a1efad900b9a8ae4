// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TimedProblem: one grouped GEMM of the engine's, timed on the device, cold and
// warm, by replays of one graph of many calls.
//
// Cold: the calls go round enough sets of weights, activations and outputs that
// nothing is left of a set in any cache when its turn comes again. Warm: all calls
// are of one set. ShapeSets is what problems of one shape share.
//
// One thread; the Gpu must outlive both.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "bench/bars/placed_problem.h"
#include "bench/kernels/gpu.h"

namespace tetrad::bars {

class ShapeSets {
 public:
  // As many sets as NVFP4 activations need, whose sets are smallest.
  static absl::StatusOr<std::unique_ptr<ShapeSets>> Make(Gpu& gpu,
                                                         std::span<const GroupShape> groups,
                                                         int threads);

  const std::vector<GroupShape>& groups() const { return groups_; }
  const WeightsImage& image() const { return image_; }
  const std::vector<std::shared_ptr<PlacedWeights>>& weights() const { return weights_; }
  int threads() const { return threads_; }

 private:
  ShapeSets(std::span<const GroupShape> groups, int threads)
      : groups_(groups.begin(), groups.end()), threads_(threads) {}
  const std::vector<GroupShape> groups_;
  const int threads_;
  WeightsImage image_;
  std::vector<std::shared_ptr<PlacedWeights>> weights_;  // one a set, the same bytes in each
};

// What is timed of a shape.
struct TimedOptions {
  ActivationType activations = ActivationType::kFp16;
  bool device_m = false;  // counts, room in every group for the rows of all
};

class TimedProblem {
 public:
  static absl::StatusOr<std::unique_ptr<TimedProblem>> Make(Gpu& gpu, const ShapeSets& sets,
                                                            const TimedOptions& options);

  // With host M, whatever was asked for: what its floor is computed from.
  const Plan& exact_plan() const { return *exact_; }
  const Plan& plan() const { return problems_.front()->plan(); }
  // The bytes of every set's activations, as exact_plan() has them.
  const ActivationImage& image() const { return image_; }
  int calls() const { return calls_; }

  // DATA_LOSS if, after a cold replay onto cleared outputs, a sample of the first or the
  // last set's is wrong.
  absl::Status Check();
  // Microseconds a call, of one replay.
  absl::StatusOr<double> ColdUs() { return Time(cold_); }
  // Cold calls for long enough that the clock is theirs.
  absl::Status Settle() { return gpu_.Settle(cold_); }
  absl::StatusOr<double> WarmUs();

 private:
  TimedProblem(Gpu& gpu, const ShapeSets& sets) : gpu_(gpu), sets_(sets) {}
  absl::Status Place(const TimedOptions& options);
  absl::Status WriteReserved(PlacedProblem& problem);
  absl::StatusOr<GpuGraph> Capture(size_t sets);
  absl::StatusOr<double> Time(const GpuGraph& graph);

  Gpu& gpu_;
  const ShapeSets& sets_;
  std::unique_ptr<Plan> exact_;
  ActivationImage image_;
  std::vector<std::unique_ptr<PlacedProblem>> problems_;  // one a set
  int calls_ = 0;
  GpuGraph cold_, warm_;
};

}  // namespace tetrad::bars
