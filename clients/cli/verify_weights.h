// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Verifies weights a daemon holds against values their producer wrote: one-hot
// activations make each output one dequantised weight, so every weight is seen
// alone, through the same path a real request takes.
#pragma once

#include "absl/status/statusor.h"

#include "clients/cli/commands.h"
#include "clients/cli/verify_report.h"

namespace tetrad::cli {

// What a producer may differ by: it multiplies scales in another order, so up
// to four roundings lie between its FP32 value and ours.
inline constexpr double kProducerRelativeBound = 4 * 0x1.0p-24 * (1 + 0x1.0p-20);

// A status if the daemon or the file cannot be used; other values are a line
// that does not pass.
absl::StatusOr<VerifyLine> VerifyWeights(const Session& session, const VerifyCommand& command);

}  // namespace tetrad::cli
