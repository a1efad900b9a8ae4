// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// main.rpc.*: what the way through the daemon costs.
#pragma once

#include "bench/bars/figure.h"

namespace tetrad::bars {

// Unary Execute with block references over an empty RPC plus the device time.
absl::StatusOr<Measured> RpcUnaryRatio(const Setting& setting);

}  // namespace tetrad::bars
