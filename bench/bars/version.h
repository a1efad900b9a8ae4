// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The commit that was built: set by the build, constant for the process.
#pragma once

#include <string_view>

namespace tetrad::bars {

// "-dirty" at its end if the tree differed from it; "unknown" outside a checkout.
std::string_view BuiltCommit();

}  // namespace tetrad::bars
