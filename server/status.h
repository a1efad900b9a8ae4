// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// absl::Status to what clients are sent, one to one, for every error that
// leaves the daemon: code, message, and the details of google.rpc made of the
// ErrorDetail that the status carries (docs/errors.md).
//
//   ErrorInfo   always: reason, domain "tetrad", and of the first violation
//               `group`, `field`, `value` and `limit`
//   BadRequest  with INVALID_ARGUMENT: every violation
//   RetryInfo   with RESOURCE_EXHAUSTED, and UNAVAILABLE that passes
//
// Message and details travel in header lines that peers limit to 8 KiB, where
// longer ones replace the real error with RESOURCE_EXHAUSTED, and they may quote
// names from files and clients. So text is made printable ASCII and capped, and
// violations are dropped from the end, with their number in place of them, until
// all is below kTrailerLimit. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace tetrad {

inline constexpr size_t kErrorTextLimit = 2048;  // bytes
// Of message and details as gRPC encodes them; the rest of 8 KiB is for the
// names of headers and what else the trailer has.
inline constexpr size_t kTrailerLimit = 6 << 10;

// For answers that carry an error inside a message. OK: code 0 and nothing else.
google::rpc::Status ToRpcStatus(const absl::Status& status);
// With the above as details.
grpc::Status ToGrpc(const absl::Status& status);

// What ErrorInfo says: the name of the Reason, or, of a status that carries
// none, that of its code, which then says no more than the code.
std::string_view ReasonText(const absl::Status& status);

// One line of printable ASCII, other bytes as \xNN, at most `limit` bytes plus
// a note of the full length.
std::string ErrorText(std::string_view text, size_t limit = kErrorTextLimit);

// "INVALID_ARGUMENT" and so on.
std::string_view CodeName(grpc::StatusCode code);

}  // namespace tetrad
