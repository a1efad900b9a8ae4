// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What was built: set by the build, constant for the process.
#pragma once

#include <string_view>

namespace tetrad {

struct Version {
  std::string_view version;
  std::string_view commit;  // "unknown" outside a git checkout
  std::string_view compiler;
};

Version BuildVersion();

}  // namespace tetrad
