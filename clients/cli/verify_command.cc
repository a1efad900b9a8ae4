// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cli/commands.h"
#include "clients/cli/draw.h"
#include "clients/cli/progress.h"
#include "clients/cli/verify_case.h"
#include "clients/cli/verify_report.h"
#include "clients/cli/verify_weights.h"
#include "kernels/shapes.h"

namespace tetrad::cli {
namespace {

struct NamedSet {
  std::string_view word;
  std::span<const NamedShape> shapes;
};

NamedSet ShapesOf(ShapeSet set) {
  switch (set) {
    case ShapeSet::kContestTests:
      return {"contest-tests", kTestShapes};
    case ShapeSet::kDecode:
      return {"decode", kDecodeShapes};
    case ShapeSet::kPrefill:
      return {"prefill", kPrefillShapes};
    default:
      return {"contest", kBenchmarkShapes};
  }
}

int Threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::string CheckName(Check check) { return check == Check::kBits ? "bit-equal" : "within bound"; }

VerifyLine LineOf(const GroupedCase& c, const CaseResult& result, std::string reproduce) {
  VerifyLine line;
  line.shape = c.name;
  line.description = Describe(c);
  line.kernel = result.kernel;
  line.device_us = result.device_us;
  line.floor_us = result.floor_us;
  line.share = result.share;
  line.check = result.pass ? CheckName(result.check) : "FAILED";
  line.worst = result.verdict.worst;
  line.compared = result.verdict.elements;
  line.elements = result.output_elements;
  line.failure = result.failure;
  line.reproduce = std::move(reproduce);
  line.pass = result.pass;
  return line;
}

// Exact data for bit equality, then general data for the bound; both must pass
// and make one line.
absl::StatusOr<VerifyLine> VerifySeed(const Session& session, uint64_t seed) {
  const GroupedCase c = DrawCase(seed);
  const std::string reproduce = absl::StrCat("tetradctl verify --shapes ", c.name);
  VerifyLine folded;
  for (const DataKind kind : DataKindsFor(c)) {
    const auto result = VerifyCase(session, c, {.kind = kind, .seed = seed, .threads = Threads()});
    if (!result.ok()) return result.status();
    VerifyLine line = LineOf(c, *result, reproduce);
    if (!line.pass) {
      line.failure = absl::StrCat(IsExact(kind) ? "exact" : "general", " data: ", line.failure);
      return line;
    }
    line.check = absl::StrCat(folded.check, folded.check.empty() ? "" : ", ", line.check);
    line.worst = std::max(folded.worst, line.worst);
    line.compared += folded.compared;
    line.elements += folded.elements;
    folded = std::move(line);
  }
  return folded;
}

absl::Status VerifyNamed(const Session& session, const VerifyCommand& command,
                         VerifyReport& report) {
  const NamedSet set = ShapesOf(command.shapes);
  ProgressBar bar(session.output.err, session.output.progress, "verifying",
                  ProgressBar::Unit::kCount);
  const auto total = static_cast<int64_t>(set.shapes.size());
  for (int64_t i = 0; i < total; ++i) {
    bar.Update(i, total);
    const GroupedCase c = ContestCase(set.shapes[static_cast<size_t>(i)]);
    const auto result = VerifyCase(
        session, c,
        {.kind = DataKind::kContest, .seed = command.seed, .executions = 2, .threads = Threads()});
    if (!result.ok()) return result.status();
    report.Add(LineOf(c, *result,
                      absl::StrCat("tetradctl verify --shapes ",
                                   absl::string_view(set.word.data(), set.word.size()), " --seed ",
                                   command.seed)));
  }
  return absl::OkStatus();
}

absl::Status VerifyRandom(const Session& session, const VerifyCommand& command,
                          VerifyReport& report) {
  ProgressBar bar(session.output.err, session.output.progress, "verifying",
                  ProgressBar::Unit::kCount);
  for (int64_t i = 0; i < command.count; ++i) {
    bar.Update(i, command.count);
    const auto line = VerifySeed(session, command.seed + static_cast<uint64_t>(i));
    if (!line.ok()) return line.status();
    report.Add(*line);
  }
  return absl::OkStatus();
}

absl::Status VerifyShapes(const Session& session, const VerifyCommand& command,
                          VerifyReport& report) {
  switch (command.shapes) {
    case ShapeSet::kRandom:
      return VerifyRandom(session, command, report);
    case ShapeSet::kWeights: {
      const auto line = VerifyWeights(session, command);
      if (line.ok()) report.Add(*line);
      return line.status();
    }
    default:
      return VerifyNamed(session, command, report);
  }
}

}  // namespace

absl::StatusOr<int> Run(const Session& session, const VerifyCommand& command) {
  const bool show_passes =
      command.verbose || command.shapes != ShapeSet::kRandom || command.count == 1;
  VerifyReport report(session.output, show_passes);
  const absl::Time start = absl::Now();
  const absl::Status status = VerifyShapes(session, command, report);
  if (!status.ok() && report.verified() == 0) return status;
  // What was found out before the daemon went away is worth printing, too.
  const int code = report.Finish(absl::Now() - start);
  if (!status.ok()) return status;
  return code;
}

}  // namespace tetrad::cli
