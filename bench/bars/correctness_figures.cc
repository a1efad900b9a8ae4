// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/correctness_figures.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

#include "bench/bars/case_runner.h"
#include "clients/cli/draw.h"
#include "engine/support/status_macros.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kSignatures = 500;

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
    absl::Status status = absl::OkStatus();
    for (const DataKind kind : cli::DataKindsFor(c)) {
      if (status.ok()) status = runner->Run(c, kind, seed);
    }
    tally.Add(c.name, status);
  }
  return tally.Finish();
}

}  // namespace tetrad::bars
