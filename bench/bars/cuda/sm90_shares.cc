// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "bench/bars/cuda/sm90_figures.h"
#include "bench/bars/cuda/sm90_gpu.h"
#include "bench/bars/paired_ratio.h"
#include "bench/kernels/floor_meter.h"
#include "bench/kernels/shape_timing.h"
#include "bench/kernels/timed_problem.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr ActivationType kTypes[] = {ActivationType::kFp16, ActivationType::kBf16,
                                     ActivationType::kNvfp4};
constexpr int kDeviceMRounds = 15, kDeviceMReplays = 2;

std::string KeyOf(const NamedShape& shape, ActivationType activations) {
  return absl::StrCat("share.", std::string(shape.name), ".", static_cast<int>(activations));
}

std::string Told(const TypeTiming& t) {
  return absl::StrFormat(
      "%.2f us cold (%.2f to %.2f), %.2f us warm, floor %.2f us of products, %.2f of bytes at %.0f "
      "TFLOP/s and %.2f TB/s; %s",
      t.cold_us.value, t.cold_us.low, t.cold_us.high, t.warm_us.value, t.floor.compute_us,
      t.floor.memory_us, t.rates.flops_per_second * 1e-12, t.rates.read_bytes_per_second * 1e-12,
      t.explanation);
}

// All types of a shape in one run, so that they have the same floors.
absl::StatusOr<std::vector<TypeTiming>> MeasureShape(const Setting& setting,
                                                     const NamedShape& shape) {
  TETRAD_ASSIGN_OR_RETURN(const auto gpu, OpenSm90(setting));
  TETRAD_ASSIGN_OR_RETURN(const auto meter, FloorMeter::Make(*gpu, setting.threads));
  TETRAD_ASSIGN_OR_RETURN(const auto sets, ShapeSets::Make(*gpu, shape.groups, setting.threads));
  return TimeShape(*gpu, *meter, *sets, kTypes);
}

// Times of a call with counts on the device, over those of the exact plan.
absl::StatusOr<Measured> DeviceMRatio(Gpu& gpu, const NamedShape& shape, int threads) {
  TETRAD_ASSIGN_OR_RETURN(const auto sets, ShapeSets::Make(gpu, shape.groups, threads));
  TETRAD_ASSIGN_OR_RETURN(const auto exact, TimedProblem::Make(gpu, *sets, {}));
  TETRAD_ASSIGN_OR_RETURN(const auto counted, TimedProblem::Make(gpu, *sets, {.device_m = true}));
  TETRAD_RETURN_IF_ERROR(exact->Check());
  TETRAD_RETURN_IF_ERROR(counted->Check());
  PairedRatio ratio;
  for (int round = 0; round < kDeviceMRounds; ++round) {
    std::vector<double> ours, theirs;
    for (int replay = 0; replay < kDeviceMReplays; ++replay) {
      TETRAD_ASSIGN_OR_RETURN(ours.emplace_back(), counted->ColdUs());
      TETRAD_ASSIGN_OR_RETURN(theirs.emplace_back(), exact->ColdUs());
    }
    ratio.Add(ours, theirs);
  }
  Measured measured = ratio.Finish();
  measured.remark = absl::StrFormat("%s: %.2f us over %.2f us; %s", std::string(shape.name),
                                    ratio.ours(), ratio.theirs(), counted->plan().explanation);
  return measured;
}

}  // namespace

absl::StatusOr<Measured> MeasureSm90Share(const Setting& setting, const NamedShape& shape,
                                          ActivationType activations) {
  Memo& memo = *setting.memo;
  if (!memo.contains(KeyOf(shape, activations))) {
    const auto timings = MeasureShape(setting, shape);
    if (!timings.ok()) {
      for (const ActivationType type : kTypes) memo.emplace(KeyOf(shape, type), timings.status());
      return timings.status();
    }
    for (const TypeTiming& timing : *timings) {
      Measured share = timing.share;
      share.remark = Told(timing);
      std::fprintf(stderr, "tetrad-bars: %s\n", share.remark.c_str());
      memo.insert_or_assign(KeyOf(shape, timing.activations), share);
    }
  }
  return memo.at(KeyOf(shape, activations));
}

absl::StatusOr<Measured> Sm90DeviceM(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto gpu, OpenSm90(setting));
  Measured largest;
  for (const size_t shape : {0, 1, 2, 3, 6}) {  // S1 to S4, D2
    TETRAD_ASSIGN_OR_RETURN(const Measured ratio,
                            DeviceMRatio(*gpu, kSm90Shapes[shape], setting.threads));
    std::fprintf(stderr, "tetrad-bars: %.3f %s\n", ratio.value, ratio.remark.c_str());
    if (ratio.value > largest.value) largest = ratio;
  }
  return largest;
}

}  // namespace tetrad::bars
