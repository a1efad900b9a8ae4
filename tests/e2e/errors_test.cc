// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What programs are told about errors, as it comes out of the trailer of a real
// connection, or out of an answer of a stream: at least one error of each code
// that a client can cause.
#include <csignal>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"

#include "clients/cpp/error_info.h"
#include "clients/cpp/execute_stream.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/stopped_threads.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

// What programs are told, with the code, to compare at once.
struct Told {
  absl::StatusCode code;
  std::string reason;
  std::string field = {};
  absl::Duration retry = absl::ZeroDuration();

  bool operator==(const Told&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Told& told) {
    return out << absl::StatusCodeToString(told.code) << ' ' << told.reason << ' ' << told.field
               << ' ' << told.retry;
  }
};

Told ToldBy(const absl::Status& status) {
  const std::optional<ErrorInfo> info = ErrorInfoOf(status);
  if (!info.has_value()) return {status.code(), "no details"};
  const auto field = info->metadata.find("field");
  return {status.code(), info->reason, field == info->metadata.end() ? "" : field->second,
          info->retry_delay.value_or(absl::ZeroDuration())};
}

TEST(ErrorsTest, EveryCodeComesWithItsReason) {
  Daemon daemon({"--max-leases", "1", "--threads", "1", "--drain-seconds", "60"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  const auto client = ConnectClient(daemon.socket());
  const v1::ExecuteRequest good = RequestOf(operands, "w");
  const auto execute = [&](const v1::ExecuteRequest& request) {
    return ToldBy(client->Execute(request).status());
  };
  using Code = absl::StatusCode;

  v1::ExecuteRequest request = good;
  request.mutable_signature()->set_output_stride(-1);
  EXPECT_EQ(execute(request),
            (Told{Code::kInvalidArgument, "FIELD_OUT_OF_RANGE", "signature.output_stride"}));
  request = good;
  request.mutable_signature()->set_output_type(static_cast<v1::OutputType>(77));
  EXPECT_EQ(execute(request),
            (Told{Code::kInvalidArgument, "UNKNOWN_ENUM_VALUE", "signature.output_type"}));
  request = good;
  request.mutable_signature()->set_weights("nobody");
  EXPECT_EQ(execute(request), (Told{Code::kNotFound, "WEIGHTS_NOT_FOUND", "signature.weights"}));
  v1::LoadRequest load;
  load.set_name("l");
  EXPECT_EQ(ToldBy(client->Load(load).status()),
            (Told{Code::kFailedPrecondition, "UNSUPPORTED_HERE"}));

  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = good.signature();
  v1::PrepareResponse prepared;
  grpc::ClientContext context;
  ASSERT_TRUE(stubs.gemm->Prepare(&context, prepare, &prepared).ok());
  request = good;
  request.set_plan(prepared.plan());
  const auto stranger = ConnectClient(daemon.tcp());
  EXPECT_EQ(ToldBy(stranger->Execute(request).status()),
            (Told{Code::kPermissionDenied, "NOT_YOURS", "plan"}));
  v1::ReleaseRequest release;
  release.set_plan(prepared.plan());
  v1::ReleaseResponse released;
  grpc::ClientContext release_context;
  ASSERT_TRUE(stubs.gemm->Release(&release_context, release, &released).ok());
  EXPECT_EQ(execute(request), (Told{Code::kAborted, "STALE_HANDLE", "plan"}));

  const auto attachment = AttachTo(*client);
  EXPECT_EQ(ToldBy(client->Attach().status()),
            (Told{Code::kResourceExhausted, "TABLE_FULL", "", absl::Milliseconds(100)}));

  // In a stream, and what the library would answer itself outside of one.
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const auto stream = client->OpenExecuteStream();
  const auto next = [&]() -> Told {
    const auto answer = stream->Next();
    return answer.has_value() ? ToldBy(StatusOf(*answer)) : Told{Code::kOk, "the end"};
  };
  request = good;
  request.clear_inline_operands();
  ASSERT_TRUE(stream->Submit(1, request));
  EXPECT_EQ(next(), (Told{Code::kInvalidArgument, "FIELD_MISSING", "operands"}));
  ASSERT_TRUE(stream->Submit(2, good, absl::Nanoseconds(1)));
  EXPECT_EQ(next(), (Told{Code::kDeadlineExceeded, "DEADLINE"}));
  ASSERT_TRUE(stream->Submit(3, slow));
  ASSERT_TRUE(stream->Submit(3, good));
  EXPECT_EQ(next(), (Told{Code::kInvalidArgument, "DUPLICATE_ID", "id"}));
  ASSERT_TRUE(stream->Cancel(3));
  EXPECT_EQ(next(), (Told{Code::kCancelled, "CANCELLED"}));

  // A request under way keeps the daemon there, behind a closed gate. What was
  // cancelled is still on the device, and is not that request.
  ASSERT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_launches_in_flight") == 0; }));
  ASSERT_TRUE(stream->Submit(4, slow));
  ASSERT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_launches_in_flight") == 1; }));
  StoppedThreads device(daemon.pid(), kDeviceThread);
  daemon.Signal(SIGTERM);
  Told told{};
  ASSERT_TRUE(Eventually([&] {
    told = ToldBy(client->ListWeights().status());
    return told.code != Code::kOk;
  }));
  EXPECT_EQ(told, (Told{Code::kUnavailable, "DRAINING", "", absl::Seconds(1)}));
  device.Resume();
  EXPECT_EQ(next(), (Told{Code::kOk, "no details"}));
  EXPECT_EQ(next(), (Told{Code::kOk, "the end"}));
  EXPECT_EQ(ToldBy(stream->Finish()), (Told{Code::kUnavailable, "DRAINING", "", absl::Seconds(1)}));
}

// A channel as gRPC makes it, which takes trailers of 8 KiB at most.
TEST(ErrorsTest, FiveThousandBadGroupsArriveThroughAnyClient) {
  Daemon daemon;
  const Stubs stubs(grpc::CreateChannel(daemon.socket(), grpc::InsecureChannelCredentials()));
  UploadMessages messages(1);
  v1::UploadHeader& header = *messages[0].mutable_header();
  header.set_name(std::string(128, 'n'));
  header.set_seal(true);
  for (int g = 0; g < 5000; ++g) {
    v1::GroupDims& dims = *header.add_groups();
    dims.set_n(std::numeric_limits<int32_t>::min());
    dims.set_k(std::numeric_limits<int32_t>::max());
  }
  v1::UploadResponse response;
  const grpc::Status status = Upload(stubs, messages, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("group 0: n=-2147483648"));
  // Read without the client library, as a foreign client does.
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  std::optional<google::rpc::BadRequest> bad;
  for (const google::protobuf::Any& any : details.details()) {
    if (!any.Is<google::rpc::BadRequest>()) continue;
    ASSERT_TRUE(any.UnpackTo(&bad.emplace()));
  }
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 17);
  EXPECT_EQ(bad->field_violations(1).field(), "header.groups[0].k");
  EXPECT_EQ(bad->field_violations(1).description(),
            "group 0: 2147483647, wanted a positive multiple of 32");
  EXPECT_EQ(bad->field_violations(15).field(), "header.groups[7].k");
  EXPECT_EQ(bad->field_violations(16).field(), "header.groups");
  EXPECT_EQ(bad->field_violations(16).description(), "9984 more");

  // The next worst: a long name of what takes most room in a trailer.
  v1::ExecuteRequest request;
  request.mutable_signature()->set_weights(std::string(1 << 20, '%'));
  grpc::ClientContext context;
  v1::ExecuteResponse unwanted;
  const grpc::Status named = stubs.gemm->Execute(&context, request, &unwanted);
  EXPECT_EQ(named.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << named.error_message();
}

}  // namespace
}  // namespace tetrad::e2e
