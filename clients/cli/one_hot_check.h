// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// One-hot check: whether a plan places every output where it belongs, on weights
// whose values are not known here. Each live row of A is 1 at one k and 0
// elsewhere, so each output is one dequantised weight; a second request, with
// FP16 rows and a dense FP32 output, reads the same weights another way, and the
// two must agree bit by bit. Sums over K it does not exercise.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "clients/cli/commands.h"
#include "clients/cli/grouped_case.h"

namespace tetrad::cli {

// Rows of a group that are compared at most: the first and the last of it.
inline constexpr int32_t kOneHotRows = 64;

// `c` is what `signature` asks, with its live rows. What is wrong, empty if
// nothing is; a status if the daemon refused a request.
absl::StatusOr<std::string> CheckOneHot(const Session& session, const v1::Signature& signature,
                                        const v1::PrepareResponse& plan, const GroupedCase& c,
                                        uint64_t seed);

}  // namespace tetrad::cli
