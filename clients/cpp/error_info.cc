// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/error_info.h"

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include "clients/cpp/status_mapping.h"

namespace tetrad {
namespace {

constexpr char kDomain[] = "tetrad";

template <typename Message>
std::optional<Message> Unpacked(const google::protobuf::Any& any) {
  std::optional<Message> message(std::in_place);
  if (!any.Is<Message>() || !any.UnpackTo(&*message)) message.reset();
  return message;
}

}  // namespace

std::optional<ErrorInfo> ErrorInfoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kStatusDetailsUrl);
  google::rpc::Status details;
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) return std::nullopt;
  ErrorInfo info;
  bool ours = false;
  for (const google::protobuf::Any& any : details.details()) {
    if (const auto said = Unpacked<google::rpc::ErrorInfo>(any);
        said && said->domain() == kDomain) {
      ours = true;
      info.reason = said->reason();
      info.metadata = {said->metadata().begin(), said->metadata().end()};
    } else if (const auto bad = Unpacked<google::rpc::BadRequest>(any)) {
      for (const auto& violation : bad->field_violations()) {
        info.violations.push_back({violation.field(), violation.description()});
      }
    } else if (const auto retry = Unpacked<google::rpc::RetryInfo>(any)) {
      info.retry_delay = absl::Seconds(retry->retry_delay().seconds()) +
                         absl::Nanoseconds(retry->retry_delay().nanos());
    }
  }
  if (!ours) return std::nullopt;
  return info;
}

absl::Status StatusOf(const v1::ExecuteStreamResponse& answer) {
  google::rpc::Status details;
  details.set_code(answer.code());
  details.set_message(answer.message());
  *details.mutable_details() = answer.details();
  return FromGrpcStatus({static_cast<grpc::StatusCode>(answer.code()), answer.message(),
                         details.SerializeAsString()});
}

}  // namespace tetrad
