// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/status_mapping.h"

#include "absl/strings/cord.h"

namespace tetrad {

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // Both enumerations number the canonical codes alike; a number outside them
  // becomes UNKNOWN.
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status result(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kStatusDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

}  // namespace tetrad
