// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/status_mapping.h"

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(StatusMappingTest, OkStaysOk) { EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok()); }

TEST(StatusMappingTest, EveryCodeKeepsItsName) {
  const struct {
    grpc::StatusCode grpc;
    absl::StatusCode absl;
  } kCases[] = {
      {grpc::StatusCode::CANCELLED, absl::StatusCode::kCancelled},
      {grpc::StatusCode::UNKNOWN, absl::StatusCode::kUnknown},
      {grpc::StatusCode::INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument},
      {grpc::StatusCode::DEADLINE_EXCEEDED, absl::StatusCode::kDeadlineExceeded},
      {grpc::StatusCode::NOT_FOUND, absl::StatusCode::kNotFound},
      {grpc::StatusCode::ALREADY_EXISTS, absl::StatusCode::kAlreadyExists},
      {grpc::StatusCode::PERMISSION_DENIED, absl::StatusCode::kPermissionDenied},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, absl::StatusCode::kResourceExhausted},
      {grpc::StatusCode::FAILED_PRECONDITION, absl::StatusCode::kFailedPrecondition},
      {grpc::StatusCode::ABORTED, absl::StatusCode::kAborted},
      {grpc::StatusCode::OUT_OF_RANGE, absl::StatusCode::kOutOfRange},
      {grpc::StatusCode::UNIMPLEMENTED, absl::StatusCode::kUnimplemented},
      {grpc::StatusCode::INTERNAL, absl::StatusCode::kInternal},
      {grpc::StatusCode::UNAVAILABLE, absl::StatusCode::kUnavailable},
      {grpc::StatusCode::DATA_LOSS, absl::StatusCode::kDataLoss},
      {grpc::StatusCode::UNAUTHENTICATED, absl::StatusCode::kUnauthenticated},
  };
  for (const auto& c : kCases) {
    const absl::Status status = FromGrpcStatus(grpc::Status(c.grpc, "group 3: k=100"));
    EXPECT_EQ(status.code(), c.absl);
    EXPECT_EQ(status.message(), "group 3: k=100");
    EXPECT_FALSE(status.GetPayload(kStatusDetailsUrl).has_value());
  }
}

TEST(StatusMappingTest, NumberOutsideTheCanonicalCodesIsUnknown) {
  for (const int code : {-1, 17, 1000}) {
    const absl::Status status =
        FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(code), "x"));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << code;
  }
}

TEST(StatusMappingTest, DetailsAreKeptByteForByte) {
  const std::string details("\x08\x03\0\xFF details", 12);
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad", details));
  const auto payload = status.GetPayload(kStatusDetailsUrl);
  ASSERT_TRUE(payload.has_value());
  EXPECT_EQ(std::string(*payload), details);
}

}  // namespace
}  // namespace tetrad
