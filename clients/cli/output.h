// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where results go: standard output for results (text or one JSON document),
// standard error for progress and complaints. Commands are handed one of
// these, so tests read what they print. One thread at a time.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace tetrad::cli {

struct Output {
  std::ostream& out;
  std::ostream& err;
  bool json = false;
  bool progress = false;  // `err` is a terminal, and --json was not given

  // `message` as one JSON document with proto field names, zero values
  // included, so that scripts can rely on every field.
  void PrintMessage(const google::protobuf::Message& message) const;
  void PrintJson(const nlohmann::json& document) const;
  void PrintText(std::string_view text) const;

  // Reports a failed command: a line on `err` and one for each violation, with --json
  // also {"error": {"code", "message", "reason", "violations", "retry_seconds"}} on
  // `out`, the last three as far as the daemon said them.
  void PrintError(const absl::Status& status) const;
};

// `message` with proto field names and zero values, as PrintMessage shows it.
nlohmann::json ToJson(const google::protobuf::Message& message);

}  // namespace tetrad::cli
