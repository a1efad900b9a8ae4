// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the way through the daemon costs.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Unary Execute with block references over an empty RPC plus the device time.
absl::StatusOr<Measured> RpcUnaryRatio(const Setting& setting);
// The rate of an ExecuteStream with 64 under way over that of unary Execute with one.
absl::StatusOr<Measured> RpcStreamRatio(const Setting& setting);

}  // namespace tetrad::bars
