// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/correctness_figures.h"

#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"

#include "bench/bars/case_runner.h"
#include "bench/bars/draw_sm90.h"
#include "bench/bars/instance_of.h"
#include "clients/cli/draw.h"
#include "engine/support/status_macros.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kSignatures = 500;
constexpr uint64_t kSm90Signatures = 2000;
constexpr int kLeastOfAVariant = 50;

// Counts the cases that are right and remembers the first that is not.
class Tally {
 public:
  void Add(const std::string& name, const absl::Status& status) {
    if (status.ok()) {
      ++right_;
      return;
    }
    const std::string line = absl::StrCat(name, ": ", status.ToString());
    std::fprintf(stderr, "tetrad-bars: %s\n", line.c_str());
    if (first_wrong_.empty()) first_wrong_ = absl::StrCat("first wrong: ", line);
  }
  Measured Finish() const { return Counted(right_, first_wrong_); }

 private:
  int64_t right_ = 0;
  std::string first_wrong_;
};

absl::Status RunBothKinds(CaseRunner& runner, const cli::GroupedCase& c, uint64_t seed) {
  for (const DataKind kind : cli::DataKindsFor(c)) {
    TETRAD_RETURN_IF_ERROR(runner.Run(c, kind, seed));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Measured> ContestBitEqual(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto runner, CaseRunner::Open(setting));
  Tally tally;
  const std::span<const NamedShape> sets[] = {kBenchmarkShapes, kTestShapes};
  for (const auto& set : sets) {
    for (const NamedShape& shape : set) {
      const cli::GroupedCase c = cli::ContestCase(shape);
      tally.Add(c.name, runner->Run(c, DataKind::kContest, kSeed));
    }
  }
  return tally.Finish();
}

absl::StatusOr<Measured> RandomOk(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto runner, CaseRunner::Open(setting));
  Tally tally;
  for (uint64_t seed = kSeed; seed < kSeed + kSignatures; ++seed) {
    const cli::GroupedCase c = cli::DrawCase(seed);
    tally.Add(c.name, RunBothKinds(*runner, c, seed));
  }
  return tally.Finish();
}

absl::StatusOr<Measured> Sm90RandomOk(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto runner, CaseRunner::Open(setting));
  if (runner->capability() != "sm_90") {
    return absl::FailedPreconditionError(
        absl::StrCat("this figure needs capability 9.0, the device has ", runner->capability()));
  }
  Tally tally;
  std::map<std::string, int> drawn;
  for (uint64_t seed = kSeed; seed < kSeed + kSm90Signatures; ++seed) {
    const cli::GroupedCase c = DrawSm90Case(seed);
    tally.Add(c.name, RunBothKinds(*runner, c, seed));
    ++drawn[runner->last_variant()];
  }
  std::string counts;
  for (const auto& entry : drawn) absl::StrAppend(&counts, " ", entry.first, " ", entry.second);
  std::fprintf(stderr, "tetrad-bars: sm90.random.ok: drawn:%s\n", counts.c_str());
  for (const std::string& variant : AllVariants()) {
    if (drawn[variant] >= kLeastOfAVariant) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(variant, " was drawn ", drawn[variant], " times, not ", kLeastOfAVariant));
  }
  return tally.Finish();
}

}  // namespace tetrad::bars
