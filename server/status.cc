// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status.h"

#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr std::array<std::string_view, 17> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

}  // namespace

std::string_view CodeName(grpc::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "UNKNOWN";
}

std::string ErrorText(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text) {
    const bool printable = c >= ' ' && c <= '~';
    if (out.size() + (printable ? 1 : 4) > limit) {
      absl::StrAppend(&out, "... (", text.size(), " bytes in all)");
      return out;
    }
    if (printable) {
      out.push_back(c);
    } else {
      char escape[5];
      std::snprintf(escape, sizeof(escape), "\\x%02X", static_cast<unsigned char>(c));
      out.append(escape);
    }
  }
  return out;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enumerations are those of google.rpc.Code.
  const absl::string_view message = status.message();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      ErrorText(std::string_view(message.data(), message.size())));
}

}  // namespace tetrad
