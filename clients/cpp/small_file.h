// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Files that options name: certificates, keys and tokens. Stateless.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tetrad {

// All of it, at most 1 MiB. Errors name `option` and the file, and never quote
// what is in it: NOT_FOUND and so on, as the system has it; FAILED_PRECONDITION
// if it is larger.
absl::StatusOr<std::string> ReadSmallFile(std::string_view option, const std::string& path);

}  // namespace tetrad
