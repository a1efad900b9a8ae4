// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads a configuration file: TOML 1.0, top-level keys only, whose values are
// texts, whole numbers, truth values or lists of texts. Does not know which
// keys exist. A pure function of the file; errors are INVALID_ARGUMENT and
// begin with file and line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/config.h"

namespace tetrad {

struct ConfigFileEntry {
  std::string key;
  ConfigValue value;
  std::string location;  // file:line
};

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path);

}  // namespace tetrad
