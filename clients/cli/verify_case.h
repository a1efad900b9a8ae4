// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Verifies one GroupedCase on a daemon: uploads seeded weights under a name of
// their own, prepares, executes, compares every output element (or, of huge
// cases, the documented subset) and every gap with what they must be, and drops
// the weights, whatever happened in between. One thread at a time per Session.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "clients/cli/commands.h"
#include "clients/cli/grouped_case.h"
#include "kernels/compare.h"
#include "kernels/sample.h"

namespace tetrad::cli {

// Multiply-adds of the reference above which tiles are sampled: the last tile
// of every group and seeded ones. All named shapes but P1 are below.
inline constexpr int64_t kMaxReferenceProducts = 64'000'000'000;

struct VerifyCaseOptions {
  DataKind kind = DataKind::kExact;
  uint64_t seed = 1;
  int executions = 1;  // must all give the same bytes; timings are the fastest's
  int threads = 1;
  int64_t max_products = kMaxReferenceProducts;
};

struct CaseResult {
  bool pass = false;
  std::string failure;  // why not
  std::string kernel;
  double device_us = 0;
  double floor_us = 0;
  double share = 0;
  Check check = Check::kBits;
  Verdict verdict;
  int64_t output_elements = 0;  // of all groups; verdict.elements were compared
};

// A status only if the daemon cannot be used (unreachable, out of resources,
// cancelled); a wrong or refused case is a result that does not pass.
absl::StatusOr<CaseResult> VerifyCase(const Session& session, const GroupedCase& c,
                                      const VerifyCaseOptions& options);

}  // namespace tetrad::cli
