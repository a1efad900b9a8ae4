// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/support/error_detail.h"

#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using absl::StatusCode;

constexpr absl::string_view kPayloadUrl = "tetrad.error_detail";

struct Row {
  Reason reason;
  StatusCode code;
  std::string_view name;
};

constexpr std::array<Row, kReasons> kRows = {{
    {Reason::kFieldOutOfRange, StatusCode::kInvalidArgument, "FIELD_OUT_OF_RANGE"},
    {Reason::kFieldMissing, StatusCode::kInvalidArgument, "FIELD_MISSING"},
    {Reason::kFieldMalformed, StatusCode::kInvalidArgument, "FIELD_MALFORMED"},
    {Reason::kFieldConflict, StatusCode::kInvalidArgument, "FIELD_CONFLICT"},
    {Reason::kUnknownEnumValue, StatusCode::kInvalidArgument, "UNKNOWN_ENUM_VALUE"},
    {Reason::kSizeMismatch, StatusCode::kInvalidArgument, "SIZE_MISMATCH"},
    {Reason::kOperandsOverlap, StatusCode::kInvalidArgument, "OPERANDS_OVERLAP"},
    {Reason::kIllegalScale, StatusCode::kInvalidArgument, "ILLEGAL_SCALE"},
    {Reason::kMessageTooLarge, StatusCode::kInvalidArgument, "MESSAGE_TOO_LARGE"},
    {Reason::kCountsBeyondCapacity, StatusCode::kInvalidArgument, "COUNTS_BEYOND_CAPACITY"},
    {Reason::kDuplicateId, StatusCode::kInvalidArgument, "DUPLICATE_ID"},
    {Reason::kIllegalCheckpoint, StatusCode::kInvalidArgument, "ILLEGAL_CHECKPOINT"},
    {Reason::kWeightsNotFound, StatusCode::kNotFound, "WEIGHTS_NOT_FOUND"},
    {Reason::kPlanNotFound, StatusCode::kNotFound, "PLAN_NOT_FOUND"},
    {Reason::kLeaseNotFound, StatusCode::kNotFound, "LEASE_NOT_FOUND"},
    {Reason::kBlockNotFound, StatusCode::kNotFound, "BLOCK_NOT_FOUND"},
    {Reason::kTicketNotFound, StatusCode::kNotFound, "TICKET_NOT_FOUND"},
    {Reason::kUploadNotFound, StatusCode::kNotFound, "UPLOAD_NOT_FOUND"},
    {Reason::kFileNotFound, StatusCode::kNotFound, "FILE_NOT_FOUND"},
    {Reason::kKeyReused, StatusCode::kAlreadyExists, "KEY_REUSED"},
    {Reason::kWeightsNotSealed, StatusCode::kFailedPrecondition, "WEIGHTS_NOT_SEALED"},
    {Reason::kWeightsSealed, StatusCode::kFailedPrecondition, "WEIGHTS_SEALED"},
    {Reason::kWeightsIncomplete, StatusCode::kFailedPrecondition, "WEIGHTS_INCOMPLETE"},
    {Reason::kShapesDiffer, StatusCode::kFailedPrecondition, "SHAPES_DIFFER"},
    {Reason::kUnsupportedHere, StatusCode::kFailedPrecondition, "UNSUPPORTED_HERE"},
    {Reason::kBusy, StatusCode::kFailedPrecondition, "BUSY"},
    {Reason::kStaleHandle, StatusCode::kAborted, "STALE_HANDLE"},
    {Reason::kTakenOver, StatusCode::kAborted, "TAKEN_OVER"},
    {Reason::kQueueFull, StatusCode::kResourceExhausted, "QUEUE_FULL"},
    {Reason::kDeviceMemory, StatusCode::kResourceExhausted, "DEVICE_MEMORY"},
    {Reason::kHostMemory, StatusCode::kResourceExhausted, "HOST_MEMORY"},
    {Reason::kPlanBudget, StatusCode::kResourceExhausted, "PLAN_BUDGET"},
    {Reason::kCallBytes, StatusCode::kResourceExhausted, "CALL_BYTES"},
    {Reason::kWorkersBusy, StatusCode::kResourceExhausted, "WORKERS_BUSY"},
    {Reason::kQuota, StatusCode::kResourceExhausted, "QUOTA"},
    {Reason::kTableFull, StatusCode::kResourceExhausted, "TABLE_FULL"},
    {Reason::kTooManyGaps, StatusCode::kResourceExhausted, "TOO_MANY_GAPS"},
    {Reason::kDeadline, StatusCode::kDeadlineExceeded, "DEADLINE"},
    {Reason::kNoProgress, StatusCode::kDeadlineExceeded, "NO_PROGRESS"},
    {Reason::kCancelled, StatusCode::kCancelled, "CANCELLED"},
    {Reason::kDraining, StatusCode::kUnavailable, "DRAINING"},
    {Reason::kDeviceLost, StatusCode::kUnavailable, "DEVICE_LOST"},
    {Reason::kNotAllowed, StatusCode::kPermissionDenied, "NOT_ALLOWED"},
    {Reason::kNotYours, StatusCode::kPermissionDenied, "NOT_YOURS"},
    {Reason::kNoCredential, StatusCode::kUnauthenticated, "NO_CREDENTIAL"},
    {Reason::kBadCredential, StatusCode::kUnauthenticated, "BAD_CREDENTIAL"},
    {Reason::kReplayProofFailed, StatusCode::kDataLoss, "REPLAY_PROOF_FAILED"},
    {Reason::kFileUnreadable, StatusCode::kDataLoss, "FILE_UNREADABLE"},
    {Reason::kWeightsLost, StatusCode::kDataLoss, "WEIGHTS_LOST"},
    {Reason::kInternal, StatusCode::kInternal, "INTERNAL"},
}};
constexpr bool InOrder() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].reason) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "a row per reason, in the order of the enumeration");

const Row& RowOf(Reason reason) { return kRows[static_cast<size_t>(reason)]; }

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// The payload: numbers and texts, each with its length before it. Both ends are here.
void Put(std::string_view text, std::string& out) {
  absl::StrAppend(&out, text.size(), ":", View(text));
}
void Put(int64_t number, std::string& out) { Put(absl::StrCat(number), out); }

std::string Take(std::string_view& in) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(in.data(), in.data() + in.size(), size);
  (void)error;
  in.remove_prefix(static_cast<size_t>(end - in.data()) + 1);
  std::string text(in.substr(0, size));
  in.remove_prefix(size);
  return text;
}
int64_t TakeNumber(std::string_view& in) {
  const std::string text = Take(in);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string Message(const FieldViolation& violation) {
  std::string message;
  std::string_view field = violation.field;
  if (violation.group.has_value()) {
    absl::StrAppend(&message, "group ", *violation.group, ": ");
    if (const size_t dot = field.rfind('.'); dot != field.npos) field.remove_prefix(dot + 1);
    field = field.substr(0, field.find('['));
  }
  absl::StrAppend(&message, View(field));
  if (!violation.value.empty()) absl::StrAppend(&message, "=", violation.value);
  if (!violation.limit.empty()) absl::StrAppend(&message, ": wanted ", violation.limit);
  return message;
}

}  // namespace

std::string_view ReasonName(Reason reason) { return RowOf(reason).name; }
absl::StatusCode CodeOf(Reason reason) { return RowOf(reason).code; }

absl::Status ReasonError(Reason reason, std::string_view message) {
  return WithDetail(absl::Status(CodeOf(reason), View(message)), {.reason = reason});
}

absl::Status FieldError(FieldViolation violation, Reason reason) {
  const std::string message = Message(violation);
  return FieldError(std::move(violation), reason, message);
}

absl::Status FieldError(FieldViolation violation, Reason reason, std::string_view message) {
  return WithDetail(absl::Status(CodeOf(reason), View(message)),
                    {.reason = reason, .violations = {std::move(violation)}});
}

void GroupErrors::Add(absl::FunctionRef<FieldViolation()> make) {
  if (detail_.violations.size() < kMost) {
    detail_.violations.push_back(make());
  } else {
    ++detail_.omitted;
  }
}

absl::Status GroupErrors::status() const {
  if (detail_.violations.empty()) return absl::OkStatus();
  std::string message = Message(detail_.violations.front());
  const int64_t others = static_cast<int64_t>(detail_.violations.size()) - 1 + detail_.omitted;
  if (others > 0) absl::StrAppend(&message, " (and ", others, " more)");
  return WithDetail(absl::Status(CodeOf(detail_.reason), message), detail_);
}

absl::Status WithDetail(absl::Status status, const ErrorDetail& detail) {
  std::string payload;
  Put(static_cast<int64_t>(detail.reason), payload);
  Put(absl::ToInt64Nanoseconds(detail.retry_delay), payload);
  Put(detail.omitted, payload);
  for (const FieldViolation& violation : detail.violations) {
    Put(violation.field, payload);
    Put(violation.value, payload);
    Put(violation.limit, payload);
    Put(violation.group.value_or(-1), payload);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(std::move(payload)));
  return status;
}

std::optional<ErrorDetail> DetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  std::string_view rest = text;
  ErrorDetail detail;
  detail.reason = static_cast<Reason>(TakeNumber(rest));
  detail.retry_delay = absl::Nanoseconds(TakeNumber(rest));
  detail.omitted = TakeNumber(rest);
  while (!rest.empty()) {
    FieldViolation violation;
    violation.field = Take(rest);
    violation.value = Take(rest);
    violation.limit = Take(rest);
    const int64_t group = TakeNumber(rest);
    if (group >= 0) violation.group = group;
    detail.violations.push_back(std::move(violation));
  }
  return detail;
}

absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status other(status.code(), View(message));
  status.ForEachPayload([&other](absl::string_view url, const absl::Cord& payload) {
    other.SetPayload(url, payload);
  });
  return other;
}

absl::Status WithPrefix(std::string_view text, const absl::Status& status) {
  return WithMessage(status, absl::StrCat(View(text), status.message()));
}

absl::Status InMessage(std::string_view message, absl::Status status) {
  std::optional<ErrorDetail> detail = DetailOf(status);
  if (!detail.has_value()) return status;
  for (FieldViolation& violation : detail->violations) {
    violation.field.insert(0, absl::StrCat(View(message), "."));
  }
  return WithDetail(std::move(status), *detail);
}

}  // namespace tetrad
