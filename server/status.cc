// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

constexpr std::array<std::string_view, 17> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

constexpr char kDomain[] = "tetrad";
constexpr absl::Duration kExhaustedDelay = absl::Milliseconds(100);
constexpr absl::Duration kRestartDelay = absl::Seconds(1);
constexpr size_t kMessageLimit = 1024;
constexpr size_t kValueLimit = 96;  // of one part of a violation
constexpr size_t kMostTold = 32;    // violations, if there is room for so many

// The one reason of codes that have one; others say it again.
std::string_view GenericReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kDeadlineExceeded:
      return ReasonName(Reason::kDeadline);
    case absl::StatusCode::kUnknown:
      return ReasonName(Reason::kInternal);
    default:
      return CodeName(static_cast<grpc::StatusCode>(code));
  }
}

// As long as gRPC makes it: `%` and what is not printable is sent as %XX.
size_t PercentEncodedBytes(std::string_view printable) {
  return printable.size() + 2 * static_cast<size_t>(std::ranges::count(printable, '%'));
}
size_t Base64Bytes(size_t bytes) { return (bytes + 2) / 3 * 4; }

// Encoding makes it at most half as long again.
std::string BoundedMessage(std::string_view message) {
  std::string text = ErrorText(message, kMessageLimit);
  if (PercentEncodedBytes(text) > kMessageLimit * 3 / 2) {
    text = ErrorText(message, kMessageLimit / 2);
  }
  return text;
}

size_t TrailerBytes(const google::rpc::Status& status) {
  return PercentEncodedBytes(status.message()) + Base64Bytes(status.ByteSizeLong());
}

google::rpc::ErrorInfo MakeErrorInfo(std::string_view reason, const ErrorDetail& detail) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason.data(), reason.size());
  info.set_domain(kDomain);
  if (detail.violations.empty()) return info;
  const FieldViolation& first = detail.violations.front();
  auto& metadata = *info.mutable_metadata();
  if (first.group.has_value()) metadata["group"] = absl::StrCat(*first.group);
  if (!first.field.empty()) metadata["field"] = ErrorText(first.field, kValueLimit);
  if (!first.value.empty()) metadata["value"] = ErrorText(first.value, kValueLimit);
  if (!first.limit.empty()) metadata["limit"] = ErrorText(first.limit, kValueLimit);
  return info;
}

absl::Duration RetryDelay(absl::StatusCode code, const ErrorDetail& detail) {
  if (detail.retry_delay > absl::ZeroDuration()) return detail.retry_delay;
  if (code == absl::StatusCode::kResourceExhausted) return kExhaustedDelay;
  // Others that are UNAVAILABLE may never pass.
  const bool restarts = detail.reason == Reason::kDraining || detail.reason == Reason::kDeviceLost;
  return restarts ? kRestartDelay : absl::ZeroDuration();
}

google::rpc::RetryInfo MakeRetryInfo(absl::Duration delay) {
  google::rpc::RetryInfo retry;
  delay = std::min(delay, absl::Hours(1));
  retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &delay));
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(delay)));
  return retry;
}

// Of a field of which nothing more is to be said: the message.
std::string Description(const FieldViolation& violation, std::string_view message) {
  if (violation.value.empty() && violation.limit.empty()) return ErrorText(message, kValueLimit);
  std::string text;
  if (violation.group.has_value()) absl::StrAppend(&text, "group ", *violation.group, ": ");
  absl::StrAppend(&text, ErrorText(violation.value, kValueLimit));
  if (!violation.limit.empty()) {
    absl::StrAppend(&text, violation.value.empty() ? "" : ", ", "wanted ",
                    ErrorText(violation.limit, kValueLimit));
  }
  return text;
}

// As many violations as there is room for, then how many more there are.
void AddBadRequest(const ErrorDetail& detail, google::rpc::Status& out) {
  google::protobuf::Any& packed = *out.add_details();
  for (size_t told = std::min(detail.violations.size(), kMostTold);; --told) {
    google::rpc::BadRequest bad;
    for (size_t i = 0; i < told; ++i) {
      auto& violation = *bad.add_field_violations();
      violation.set_field(ErrorText(detail.violations[i].field, kValueLimit));
      violation.set_description(Description(detail.violations[i], out.message()));
    }
    const int64_t rest = static_cast<int64_t>(detail.violations.size() - told) + detail.omitted;
    if (rest > 0) {
      auto& more = *bad.add_field_violations();
      const std::string& field = detail.violations.front().field;
      more.set_field(ErrorText(std::string_view(field).substr(0, field.find('[')), kValueLimit));
      more.set_description(absl::StrCat(rest, " more"));
    }
    packed.PackFrom(bad);
    if (told == 0 || TrailerBytes(out) < kTrailerLimit) return;
  }
}

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

std::string_view ReasonText(const absl::Status& status) {
  if (const std::optional<ErrorDetail> detail = DetailOf(status); detail.has_value()) {
    return ReasonName(detail->reason);
  }
  return GenericReason(status.code());
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  if (status.ok()) return out;
  const std::optional<ErrorDetail> carried = DetailOf(status);
  const std::string_view reason =
      carried.has_value() ? ReasonName(carried->reason) : GenericReason(status.code());
  const ErrorDetail detail = carried.value_or(ErrorDetail{});
  // Both enumerations are those of google.rpc.Code.
  out.set_code(static_cast<int>(status.code()));
  const absl::string_view message = status.message();
  out.set_message(BoundedMessage({message.data(), message.size()}));
  out.add_details()->PackFrom(MakeErrorInfo(reason, detail));
  if (const absl::Duration delay = RetryDelay(status.code(), detail);
      delay > absl::ZeroDuration()) {
    out.add_details()->PackFrom(MakeRetryInfo(delay));
  }
  if (absl::IsInvalidArgument(status) && !detail.violations.empty()) {
    AddBadRequest(detail, out);
  }
  return out;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status told = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(told.code()), told.message(),
                      told.SerializeAsString());
}

}  // namespace tetrad
