// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/shape_timing.h"

#include <memory>
#include <utility>

#include "bench/bars/paired_ratio.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr int kRounds = 12, kReplays = 3;  // together at least 30 replays

struct Readings {
  std::unique_ptr<TimedProblem> problem;
  PairedRatio share;  // floors over times
  std::vector<double> cold_us, warm_us, product_rates, read_rates;
};

absl::StatusOr<double> FloorNow(FloorMeter& meter, Readings& readings) {
  const Signature& signature = readings.problem->exact_plan().signature;
  TETRAD_ASSIGN_OR_RETURN(const DeviceRates rates, meter.Measure(signature.types.a_type));
  readings.product_rates.push_back(rates.flops_per_second);
  readings.read_rates.push_back(rates.read_bytes_per_second);
  return ComputeFloor(signature, rates).floor_us();
}

absl::Status Round(FloorMeter& meter, Readings& readings) {
  TETRAD_ASSIGN_OR_RETURN(const double before, FloorNow(meter, readings));
  TETRAD_RETURN_IF_ERROR(readings.problem->Settle());
  std::vector<double> cold;
  for (int replay = 0; replay < kReplays; ++replay) {
    TETRAD_ASSIGN_OR_RETURN(cold.emplace_back(), readings.problem->ColdUs());
  }
  TETRAD_ASSIGN_OR_RETURN(const double after, FloorNow(meter, readings));
  TETRAD_ASSIGN_OR_RETURN(readings.warm_us.emplace_back(), readings.problem->WarmUs());
  readings.share.Add({0.5 * (before + after)}, cold);
  readings.cold_us.insert(readings.cold_us.end(), cold.begin(), cold.end());
  return absl::OkStatus();
}

TypeTiming TimingOf(const ShapeSets& sets, const Readings& readings) {
  const Plan& exact = readings.problem->exact_plan();
  TypeTiming timing{.activations = exact.signature.types.a_type,
                    .kernel = exact.kernel,
                    .explanation = exact.explanation,
                    .sets = static_cast<int>(sets.weights().size()),
                    .calls = readings.problem->calls()};
  timing.rates = {.flops_per_second = Median(readings.product_rates),
                  .read_bytes_per_second = Median(readings.read_rates)};
  timing.floor = ComputeFloor(exact.signature, timing.rates);
  timing.cold_us = MedianOf(readings.cold_us);
  timing.warm_us = MedianOf(readings.warm_us);
  timing.share = readings.share.Finish();
  return timing;
}

}  // namespace

absl::StatusOr<std::vector<TypeTiming>> TimeShape(Gpu& gpu, FloorMeter& meter,
                                                  const ShapeSets& sets,
                                                  std::span<const ActivationType> types) {
  std::vector<Readings> all(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    TETRAD_ASSIGN_OR_RETURN(all[i].problem,
                            TimedProblem::Make(gpu, sets, {.activations = types[i]}));
    TETRAD_RETURN_IF_ERROR(all[i].problem->Check());
    TETRAD_RETURN_IF_ERROR(all[i].problem->WarmUs().status());  // captured, before rounds count
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Readings& readings : all) TETRAD_RETURN_IF_ERROR(Round(meter, readings));
  }
  std::vector<TypeTiming> timings;
  for (const Readings& readings : all) timings.push_back(TimingOf(sets, readings));
  return timings;
}

}  // namespace tetrad::bars
