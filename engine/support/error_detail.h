// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a status tells programs, beside its code and message for people: a
// reason out of a closed list, the fields that are at fault, and when to try
// again. It travels as a payload of the absl::Status, so that whoever only looks
// at codes need not know it; the server makes the details of google.rpc of it.
//
// Every reason has one code. docs/errors.md lists them all and what to do about
// each. Values of clients in violations and messages are bounded by the server
// when they are sent, not here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tetrad {

enum class Reason : uint8_t {
  // INVALID_ARGUMENT
  kFieldOutOfRange,   // a value beyond its limits
  kFieldMissing,      // what must be there is not
  kFieldMalformed,    // not of the form wanted: names, handles, keys, metadata
  kFieldConflict,     // excludes, or does not fit, another field
  kUnknownEnumValue,  // a number this daemon has no meaning for
  kSizeMismatch,      // an operand is not as large as the signature says
  kOperandsOverlap,
  kIllegalScale,          // negative or NaN, in weights
  kMessageTooLarge,       // of inline operands and reply
  kCountsBeyondCapacity,  // device-side M
  kDuplicateId,
  kIllegalCheckpoint,
  // NOT_FOUND
  kWeightsNotFound,
  kPlanNotFound,
  kLeaseNotFound,
  kBlockNotFound,
  kTicketNotFound,
  kUploadNotFound,
  kFileNotFound,
  // ALREADY_EXISTS
  kKeyReused,  // another request under an idempotency or upload key
  // FAILED_PRECONDITION
  kWeightsNotSealed,
  kWeightsSealed,
  kWeightsIncomplete,
  kShapesDiffer,
  kUnsupportedHere,  // by this device or configuration
  kBusy,             // the same thing is being done by another call
  // ABORTED
  kStaleHandle,  // of an earlier process or generation: prepare or attach again
  kTakenOver,    // the lease is held by a newer stream
  // RESOURCE_EXHAUSTED
  kQueueFull,
  kDeviceMemory,
  kHostMemory,
  kPlanBudget,
  kCallBytes,
  kWorkersBusy,
  kQuota,        // of this client
  kTableFull,    // of all clients: leases, tickets, versions
  kTooManyGaps,  // an upload too far out of order
  // others
  kDeadline,           // DEADLINE_EXCEEDED
  kNoProgress,         // DEADLINE_EXCEEDED: a stream stood still for too long
  kCancelled,          // CANCELLED
  kDraining,           // UNAVAILABLE
  kDeviceLost,         // UNAVAILABLE
  kNotAllowed,         // PERMISSION_DENIED: this identity, this method
  kNotYours,           // PERMISSION_DENIED: another client's lease, block or ticket
  kNoCredential,       // UNAUTHENTICATED
  kBadCredential,      // UNAUTHENTICATED: unknown, expired or withdrawn
  kReplayProofFailed,  // DATA_LOSS
  kFileUnreadable,     // DATA_LOSS: of a checkpoint, or it changed while it was read
  kWeightsLost,        // DATA_LOSS: the device failed while it packed them
  kInternal,           // INTERNAL
};
inline constexpr size_t kReasons = static_cast<size_t>(Reason::kInternal) + 1;

// "FIELD_OUT_OF_RANGE"
std::string_view ReasonName(Reason reason);
absl::StatusCode CodeOf(Reason reason);

struct FieldViolation {
  std::string field;                  // as in the schema: "signature.exact.m[3]"
  std::string value = {};             // what came, if that can be said
  std::string limit = {};             // what is wanted: "at least 1"
  std::optional<int64_t> group = {};  // whose it is
};

struct ErrorDetail {
  Reason reason = Reason::kInternal;
  std::vector<FieldViolation> violations = {};
  absl::Duration retry_delay = absl::ZeroDuration();  // zero: not said
  int64_t omitted = 0;                                // violations beyond those listed
};

// A status with the reason's code.
absl::Status ReasonError(Reason reason, std::string_view message);
// Of one field. The message is made of the violation: "group 3: n=0: wanted at least 1",
// where a field of a group goes by the last part of its name.
absl::Status FieldError(FieldViolation violation, Reason reason = Reason::kFieldOutOfRange);
// Where that would not say it: with a message of its own.
absl::Status FieldError(FieldViolation violation, Reason reason, std::string_view message);

// What is wrong with groups, of which a request may have very many: the first
// kMost violations are told, the others counted.
class GroupErrors {
 public:
  static constexpr size_t kMost = 16;
  explicit GroupErrors(Reason reason = Reason::kFieldOutOfRange) { detail_.reason = reason; }
  // `make` is called only for what is told.
  void Add(absl::FunctionRef<FieldViolation()> make);
  bool empty() const { return detail_.violations.empty(); }
  // OK if nothing was added; otherwise with the message of the first violation.
  absl::Status status() const;

 private:
  ErrorDetail detail_;
};

// Adds the detail, in place of one that is there. The code of `status` stays.
absl::Status WithDetail(absl::Status status, const ErrorDetail& detail);
// Nothing if the status carries none.
std::optional<ErrorDetail> DetailOf(const absl::Status& status);
// With another message, or with `text` before the one it has; code and detail stay.
absl::Status WithMessage(const absl::Status& status, std::string_view message);
absl::Status WithPrefix(std::string_view text, const absl::Status& status);
// With `message.` before the fields: for what knows its own fields, but not in
// which message they came. What carries no detail stays as it is.
absl::Status InMessage(std::string_view message, absl::Status status);

}  // namespace tetrad
