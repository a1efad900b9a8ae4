// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LibraryPeers: what cuBLAS makes of a shape whose weights were dequantised to 16
// bits beforehand: a product a group on streams side by side, and all groups in one
// grouped call. Cold, of as many sets as their own bytes need; the same numbers as ours.
//
// One thread; the Gpu and the cuBLAS must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "bench/bars/paired_ratio.h"
#include "bench/kernels/cublas.h"
#include "bench/kernels/gpu.h"
#include "bench/kernels/timed_problem.h"

namespace tetrad::bars {

class LibraryPeers {
 public:
  // Of the sets' weights and the problem's activations, which are of 16 bits.
  static absl::StatusOr<std::unique_ptr<LibraryPeers>> Make(Gpu& gpu, const Cublas& cublas,
                                                            const ShapeSets& sets,
                                                            const TimedProblem& problem);
  ~LibraryPeers();
  LibraryPeers(const LibraryPeers&) = delete;

  // Microseconds a call, of one replay.
  absl::StatusOr<double> StreamsUs() { return Time(streams_graph_); }
  absl::StatusOr<double> GroupedUs() { return Time(grouped_graph_); }
  bool has_grouped() const { return cublas_.has_grouped(); }

 private:
  class Streams;
  LibraryPeers(Gpu& gpu, const Cublas& cublas);
  absl::Status Place(const ShapeSets& sets, const TimedProblem& problem);
  absl::Status CaptureStreams();
  absl::Status CaptureGrouped();
  absl::Status Check(const ShapeSets& sets, const TimedProblem& problem, const GpuGraph& graph);
  absl::StatusOr<double> Time(const GpuGraph& graph);

  Gpu& gpu_;
  const Cublas& cublas_;
  ActivationType type_ = ActivationType::kFp16;
  struct Set {
    GpuBuffer a, b, c, pointers;
    std::vector<CublasProduct> products;  // of groups with rows, largest first
  };
  std::vector<Set> operands_;
  int calls_ = 0;
  std::unique_ptr<Streams> streams_;
  Cublas::Handle handle_ = nullptr;  // of the grouped calls
  GpuBuffer workspace_;
  GpuGraph streams_graph_, grouped_graph_;
};

// Our calls and the peers' in turn: their times over ours.
struct LibraryRatios {
  PairedRatio streams, grouped;  // grouped: empty where cuBLAS has no such call
  std::vector<double> ours_us;
};
absl::StatusOr<LibraryRatios> TimeLibraryPeers(TimedProblem& ours, LibraryPeers& peers);

}  // namespace tetrad::bars
