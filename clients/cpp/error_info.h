// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ErrorInfo: what the daemon tells programs about an error, beside its code and
// message: a reason out of the list in docs/errors.md, which fields are at
// fault, and when to try again. Read from the details that a status of the
// client carries (status_mapping.h), or that an answer carries inside.
//
// Pure functions. Details that cannot be parsed, or of nobody known, are none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.pb.h"

namespace tetrad {

struct ErrorInfo {
  struct Violation {
    std::string field;        // "signature.exact.m[3]"
    std::string description;  // "group 3: -1, wanted at least 0"
  };
  std::string reason;  // "FIELD_OUT_OF_RANGE"
  // Of the first violation: "field", "value", "limit", "group", as far as they are known.
  std::map<std::string, std::string> metadata;
  std::vector<Violation> violations;  // of INVALID_ARGUMENT
  std::optional<absl::Duration> retry_delay;
};

// Nothing if it has no details of a daemon: one is OK, another was made by the
// client or by gRPC itself.
std::optional<ErrorInfo> ErrorInfoOf(const absl::Status& status);

// The outcome of one request of an ExecuteStream, with the details where
// ErrorInfoOf() finds them.
absl::Status StatusOf(const v1::ExecuteStreamResponse& answer);

}  // namespace tetrad
