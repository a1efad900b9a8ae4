// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "bench/bars/cuda/sm90_figures.h"
#include "bench/bars/cuda/sm90_gpu.h"
#include "bench/bars/placed_problem.h"
#include "bench/kernels/grouped_data.h"
#include "engine/support/status_macros.h"
#include "kernels/cuda/proof.h"

namespace tetrad::bars {
namespace {

constexpr size_t kShapes = 4;  // S1 to S4
constexpr int kReplays = 100'000;
constexpr size_t kInputs = 4;   // replayed back to back, each into an output of its own
constexpr size_t kRounds = 25;  // of one graph
constexpr size_t kPerGraph = kInputs * kRounds;
static_assert(kReplays % kPerGraph == 0);
constexpr uint32_t kCompareGrid = 512;
constexpr uint8_t kUntouched = 0xA5;

// One input: what is replayed, and the output of the same launched once, directly.
struct Input {
  std::unique_ptr<PlacedProblem> replayed, direct;
  GpuBuffer output, expected;
};

absl::StatusOr<Input> MakeInput(Gpu& gpu, const NamedShape& shape,
                                const std::shared_ptr<const PlacedWeights>& weights, size_t number,
                                int threads) {
  Signature signature;
  signature.form = GroupForm::kStacked;
  signature.groups.assign(shape.groups.begin(), shape.groups.end());
  signature.types.a_type = number % 2 == 0 ? ActivationType::kNvfp4 : ActivationType::kFp16;
  if (number % 2 == 0) signature.types.a_scale_layout = ScaleLayout::kBlocked;
  Input input;
  for (auto* const problem : {&input.replayed, &input.direct}) {
    TETRAD_ASSIGN_OR_RETURN(
        *problem, PlacedProblem::Place(gpu.device(), gpu.device().limits(), signature, weights));
    TETRAD_RETURN_IF_ERROR(
        (*problem)->WriteActivations(MakeActivations((*problem)->plan(), 10 + number, threads)));
  }
  TETRAD_RETURN_IF_ERROR(gpu.device().LaunchEagerly(input.direct->binding()));
  TETRAD_ASSIGN_OR_RETURN(input.output, gpu.Alias(input.replayed->blocks().c));
  TETRAD_ASSIGN_OR_RETURN(input.expected, gpu.Alias(input.direct->blocks().c));
  return input;
}

// The launches of one round follow each other at once (full edges); every output is spoilt
// before and compared after, and a byte that differs is counted for its replay.
absl::Status GiveRound(Gpu& gpu, const std::array<Input, kInputs>& inputs, CUdeviceptr counters,
                       CUstream stream) {
  for (const Input& input : inputs) {
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(gpu.context(), MemsetD8Async, input.output.address(),
                                       kUntouched, static_cast<size_t>(input.output.bytes()),
                                       stream));
  }
  for (const Input& input : inputs) {
    TETRAD_RETURN_IF_ERROR(gpu.device().LaunchOn(stream, input.replayed->binding()));
  }
  for (const Input& input : inputs) {
    TETRAD_RETURN_IF_ERROR(cuda::LaunchKernel(
        gpu.context(), gpu.kernels().proof_compare(), kCompareGrid, stream, input.output.address(),
        input.expected.address(), input.output.bytes(), counters));
    counters += sizeof(uint64_t);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CountDifferent(Gpu& gpu, const NamedShape& shape, int threads) {
  TETRAD_ASSIGN_OR_RETURN(const auto weights,
                          PlacedWeights::Place(gpu.device(), gpu.device().limits(),
                                               MakeWeights(shape.groups, 1, threads)));
  std::array<Input, kInputs> inputs;
  std::vector<std::byte> previous, output;
  for (size_t i = 0; i < kInputs; ++i) {
    TETRAD_ASSIGN_OR_RETURN(inputs[i], MakeInput(gpu, shape, weights, i, threads));
    TETRAD_RETURN_IF_ERROR(inputs[i].direct->ReadOutput(output));
    if (output == previous) {
      return absl::InternalError("other inputs gave the same output: nothing could be seen");
    }
    previous = output;
  }
  TETRAD_ASSIGN_OR_RETURN(const GpuBuffer counters, gpu.Allocate(kPerGraph * sizeof(uint64_t)));
  TETRAD_ASSIGN_OR_RETURN(const GpuGraph graph, gpu.Capture([&](CUstream stream) {
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(gpu.context(), MemsetD8Async, counters.address(), 0,
                                       static_cast<size_t>(counters.bytes()), stream));
    for (size_t round = 0; round < kRounds; ++round) {
      TETRAD_RETURN_IF_ERROR(
          GiveRound(gpu, inputs, counters.address() + round * kInputs * sizeof(uint64_t), stream));
    }
    return absl::OkStatus();
  }));
  int64_t different = 0;
  std::array<uint64_t, kPerGraph> bytes;
  for (int done = 0; done < kReplays; done += static_cast<int>(kPerGraph)) {
    TETRAD_RETURN_IF_ERROR(gpu.Launch(graph));
    TETRAD_RETURN_IF_ERROR(gpu.Synchronize());
    TETRAD_RETURN_IF_ERROR(counters.Read(std::as_writable_bytes(std::span(bytes))));
    for (size_t i = 0; i < kPerGraph; ++i) {
      if (bytes[i] == 0) continue;
      if (++different == 1) {
        std::fprintf(stderr, "tetrad-bars: %s: replay %d: %llu bytes differ\n",
                     std::string(shape.name).c_str(), done + static_cast<int>(i),
                     static_cast<unsigned long long>(bytes[i]));
      }
    }
  }
  return different;
}

}  // namespace

absl::StatusOr<Measured> Sm90ReplayDifferent(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto gpu, OpenSm90(setting));
  int64_t different = 0;
  std::string by_shape;
  for (size_t i = 0; i < kShapes; ++i) {
    const NamedShape& shape = kSm90Shapes[i];
    TETRAD_ASSIGN_OR_RETURN(const int64_t found, CountDifferent(*gpu, shape, setting.threads));
    different += found;
    absl::StrAppend(&by_shape, i > 0 ? ", " : "", std::string(shape.name), " ", found);
  }
  return Counted(different, by_shape);
}

}  // namespace tetrad::bars
