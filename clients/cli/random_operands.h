// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A request on weights whose values are not known here: random activations in
// the sizes that the plan states. The same seed gives the same bytes. Refuses
// what the daemon would refuse for its size, before the memory is taken.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tetrad/v1/gemm.pb.h"

#include "clients/cli/commands.h"

namespace tetrad::cli {

struct RandomOperands {
  const v1::Signature& signature;
  const std::vector<int32_t>& live_rows;  // device-side M; empty: all rows, spread evenly
  uint64_t seed = 1;
};

// Rows per group of a capacity: those asked for, else all of them.
absl::StatusOr<std::vector<int32_t>> LiveRows(const RandomOperands& wanted,
                                              const v1::PlanInfo& info);

// Names the plan. INVALID_ARGUMENT: rows of other groups than the weights have,
// or operands beyond max_inline_bytes.
absl::StatusOr<v1::ExecuteRequest> MakeRandomRequest(const Session& session,
                                                     const RandomOperands& wanted,
                                                     const v1::PrepareResponse& plan);

}  // namespace tetrad::cli
