// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// absl::Status to grpc::Status, one to one, for every error that leaves the
// daemon.
//
// The message travels in a header line that peers limit to 8 KiB, where a
// longer one replaces the real error with RESOURCE_EXHAUSTED, and it may quote
// names from files and clients. So it is made printable ASCII and capped. Pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tetrad {

inline constexpr size_t kErrorTextLimit = 2048;  // bytes; encoding at most triples it

// The one place where structured details would be attached.
grpc::Status ToGrpc(const absl::Status& status);

// One line of printable ASCII, other bytes as \xNN, at most `limit` bytes plus
// a note of the full length.
std::string ErrorText(std::string_view text, size_t limit = kErrorTextLimit);

// "INVALID_ARGUMENT" and so on.
std::string_view CodeName(grpc::StatusCode code);

}  // namespace tetrad
