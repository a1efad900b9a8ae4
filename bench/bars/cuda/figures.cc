// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/cuda/figures.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "bench/bars/cuda/open_device.h"
#include "bench/bars/paired_ratio.h"
#include "bench/bars/placed_problem.h"
#include "engine/cuda/errors.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

using cuda::CudaDevice;

constexpr int kReplays = 10'000, kFirstReplays = 100;
constexpr int kInputs = 16;
constexpr int kRatioBlocks = 40, kRatioLaunches = 500;
constexpr int kPortableWarmUp = 10, kPortableLaunches = 100;

double MicrosecondsSince(Instant begin) { return 1e-3 * static_cast<double>(SteadyNow() - begin); }

SampleOptions OptionsOf(DataKind kind) {
  SampleOptions options;
  options.kind = kind;
  options.types.a_scale_layout = ScaleLayout::kBlocked;
  options.types.b_scale_layout = ScaleLayout::kBlocked;
  return options;
}

absl::StatusOr<int64_t> FreeBytes(const CudaDevice& device) {
  TETRAD_RETURN_IF_ERROR(device.Enter());
  size_t free_bytes = 0, total_bytes = 0;
  TETRAD_RETURN_IF_ERROR(
      cuda::CudaStatus(device.driver().MemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo"));
  return static_cast<int64_t>(free_bytes);
}

struct Replays {
  int64_t different = 0;
  int64_t first_different = -1;
  int64_t memory_growth = 0;  // bytes
};

// Replays one graph, before each launch its activations are written anew: those
// of 16 seeds in turn, so that an output that was left from before is another.
absl::StatusOr<Replays> ReplayS4(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto device, OpenCuda(setting, [] {}));
  // Any accumulation in another order has other bits.
  SampleOptions options = OptionsOf(DataKind::kGeneral);
  TETRAD_ASSIGN_OR_RETURN(const auto problem,
                          PlacedProblem::Place(*device, device->limits(), kShapeS4, options));
  std::vector<ActivationImage> inputs;
  std::vector<std::vector<std::byte>> eager(kInputs);
  for (int i = 0; i < kInputs; ++i) {
    options.seed = static_cast<uint64_t>(i) + 1;
    inputs.push_back(SampleActivations(problem->plan(), options));
    TETRAD_RETURN_IF_ERROR(problem->WriteActivations(inputs.back()));
    TETRAD_RETURN_IF_ERROR(device->LaunchEagerly(problem->binding()));
    TETRAD_RETURN_IF_ERROR(problem->ReadOutput(eager[i]));
    if (i > 0 && eager[i] == eager[i - 1]) {
      return absl::InternalError("other inputs gave the same output: nothing could be seen");
    }
  }
  Replays replays;
  std::vector<std::byte> output;
  int64_t free_before = 0;
  for (int replay = 0; replay < kReplays; ++replay) {
    const int input = replay % kInputs;
    TETRAD_RETURN_IF_ERROR(problem->WriteActivations(inputs[input]));
    TETRAD_RETURN_IF_ERROR(problem->Run().status());
    TETRAD_RETURN_IF_ERROR(problem->ReadOutput(output));
    if (output != eager[input] && ++replays.different == 1) replays.first_different = replay;
    if (replay + 1 == kFirstReplays) {
      TETRAD_ASSIGN_OR_RETURN(free_before, FreeBytes(*device));
    }
  }
  TETRAD_ASSIGN_OR_RETURN(const int64_t free_after, FreeBytes(*device));
  replays.memory_growth = free_before - free_after;
  return replays;
}

// The times of launches made on the graph itself, each until its record is there.
absl::StatusOr<std::vector<double>> TimeBareLaunches(CudaDevice& device, BindingId binding) {
  TETRAD_RETURN_IF_ERROR(device.Enter());
  TETRAD_ASSIGN_OR_RETURN(const CudaDevice::BareLaunch bare, device.BeginBareLaunches(binding));
  std::vector<double> times;
  uint64_t launches = bare.launches;
  absl::Status status = absl::OkStatus();
  for (int i = 0; i < kRatioLaunches && status.ok(); ++i) {
    const Instant begin = SteadyNow();
    status = cuda::CudaStatus(device.driver().GraphLaunch(bare.exec, bare.stream), "cuGraphLaunch");
    if (!status.ok()) break;
    const uint64_t sequence = ++launches;
    // The device writes it; the record is const to the host alone.
    const std::atomic_ref<uint64_t> seen(
        const_cast<uint64_t&>(bare.records[(sequence - 1) % bare.depth].sequence));
    while (seen.load(std::memory_order_acquire) != sequence && status.ok()) {
      status = device.health();
    }
    times.push_back(MicrosecondsSince(begin));
  }
  device.EndBareLaunches(binding, launches - bare.launches);
  if (!status.ok()) return status;
  return times;
}

absl::StatusOr<std::vector<double>> TimeDeviceLaunches(PlacedProblem& problem) {
  std::vector<double> times;
  for (int i = 0; i < kRatioLaunches; ++i) {
    const Instant begin = SteadyNow();
    TETRAD_RETURN_IF_ERROR(problem.Run().status());
    times.push_back(MicrosecondsSince(begin));
  }
  return times;
}

}  // namespace

absl::StatusOr<Measured> ReplayDifferent(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const Replays replays, ReplayS4(setting));
  return Counted(replays.different,
                 absl::StrCat("first different: replay ", replays.first_different));
}

absl::StatusOr<Measured> ReplayMemoryGrowth(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const Replays replays, ReplayS4(setting));
  return Counted(replays.memory_growth);
}

absl::StatusOr<Measured> ReplayRatio(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto device, OpenCuda(setting, [] {}));
  constexpr GroupShape kSmall[] = {{.m = 1, .n = 128, .k = 128}};
  TETRAD_ASSIGN_OR_RETURN(
      const auto problem,
      PlacedProblem::Place(*device, device->limits(), kSmall, OptionsOf(DataKind::kContest)));
  PairedRatio ratio;
  for (int block = -2; block < kRatioBlocks; ++block) {  // the first two warm up
    TETRAD_ASSIGN_OR_RETURN(const auto ours, TimeDeviceLaunches(*problem));
    TETRAD_ASSIGN_OR_RETURN(const auto bare, TimeBareLaunches(*device, problem->binding()));
    if (block >= 0) ratio.Add(ours, bare);
  }
  Measured measured = ratio.Finish();
  measured.remark = absl::StrCat("p50 ", ratio.ours(), " us over ", ratio.theirs(), " us");
  std::fprintf(stderr, "tetrad-bars: main.replay.ratio: %s\n", measured.remark.c_str());
  return measured;
}

absl::StatusOr<Measured> PortableS1(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto device, OpenCuda(
                                                 setting, [] {}, /*portable_only=*/true));
  TETRAD_ASSIGN_OR_RETURN(
      const auto problem,
      PlacedProblem::Place(*device, device->limits(), kShapeS1, OptionsOf(DataKind::kGeneral)));
  if (!absl::StrContains(problem->plan().kernel, "portable")) {
    return absl::InternalError(absl::StrCat("planned with ", problem->plan().kernel));
  }
  std::vector<double> times;
  for (int launch = -kPortableWarmUp; launch < kPortableLaunches; ++launch) {
    TETRAD_ASSIGN_OR_RETURN(const Completion completion, problem->Run());
    if (launch >= 0) times.push_back(1e-3 * static_cast<double>(completion.device_ns));
  }
  return MedianOf(std::move(times));
}

}  // namespace tetrad::bars
