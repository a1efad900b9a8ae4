// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// RunChild: runs another program to its end, as python3 with a peer.
//
// Waits for it, so that nothing is measured beside it. Its standard error is ours.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tetrad::bars {

// What it writes to standard output. `command[0]` is looked for in PATH. Input beyond
// what a pipe holds is fine. FAILED_PRECONDITION where it does not exist or fails.
absl::StatusOr<std::string> RunChild(const std::vector<std::string>& command,
                                     const std::string& input);

}  // namespace tetrad::bars
