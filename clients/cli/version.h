// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What was built: set by the build, constant for the process.
#pragma once

#include <string>

namespace tetrad::cli {

// "0.1.0 (commit, compiler)", as tetradd shows its own.
std::string BuildVersion();

}  // namespace tetrad::cli
