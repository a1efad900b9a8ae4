// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Limits of what clients can make grow: one below, at and one above each; and
// what must not be taken for too much.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

#include "tests/e2e/memory_client.h"
#include "tests/e2e/raw_connection.h"

namespace tetrad::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr auto kOk = grpc::StatusCode::OK;
constexpr auto kInvalidArgument = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kResourceExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
constexpr char kGetStatus[] = "/tetrad.v1.Status/GetStatus";

grpc::Status GetStatus(const Stubs& stubs, size_t padding = 0) {
  grpc::ClientContext context;
  if (padding > 0) context.AddMetadata("x-padding", std::string(padding, 'p'));
  v1::GetStatusResponse response;
  return stubs.status->GetStatus(&context, {}, &response);
}

// A call that stays until it is destroyed.
class OpenCall {
 public:
  explicit OpenCall(const Stubs& stubs) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(90));
    stream_ = stubs.gemm->ExecuteStream(&context_);
  }
  ~OpenCall() {
    context_.TryCancel();
    if (!finished_) (void)stream_->Finish();
  }
  // True once the daemon has it: a message was answered. False if it is refused.
  bool Answered() {
    v1::ExecuteStreamResponse answer;
    return stream_->Write({}) && stream_->Read(&answer);
  }
  grpc::Status Refusal() {
    v1::ExecuteStreamResponse answer;
    stream_->Read(&answer);
    finished_ = true;
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>
      stream_;
  bool finished_ = false;
};

// Sizes as HTTP/2 counts them: name, value and 32 bytes for each field.
size_t MetadataBytes(const std::string& path, size_t padding) {
  const std::pair<size_t, size_t> fields[] = {{7, 4},   {7, 4}, {5, path.size()}, {10, 9},
                                              {12, 16}, {2, 8}, {9, padding}};
  size_t bytes = 0;
  for (const auto& [name, value] : fields) bytes += name + value + 32;
  return bytes;
}

TEST(LimitsTest, MetadataOfACall) {
  constexpr size_t kLimit = 2048;
  const Daemon daemon({"--max-metadata-bytes", absl::StrCat(kLimit)});
  const size_t fits = kLimit - MetadataBytes(kGetStatus, 0);
  const auto trailers = [&](size_t padding) {
    RawConnection raw(daemon.tcp());
    EXPECT_TRUE(raw.AcceptSettings(absl::Seconds(30)));
    raw.Call(1, kGetStatus, padding);
    raw.Message(1, "");
    raw.HalfClose(1);
    EXPECT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
    EXPECT_TRUE(raw.open());  // one call's excess ends no other
    return raw.Trailers(1);
  };
  const std::string ok(std::string("grpc-status\x01") + "0");
  EXPECT_THAT(trailers(fits - 1), HasSubstr(ok));
  EXPECT_THAT(trailers(fits), HasSubstr(ok));
  const std::string refused = trailers(fits + 1);
  EXPECT_THAT(refused, HasSubstr(std::string("grpc-status\x01") + "8"));
  // Clients of gRPC are told the limit and refuse it themselves.
  const Stubs stubs(daemon);
  EXPECT_EQ(GetStatus(stubs).error_code(), kOk);
  EXPECT_EQ(GetStatus(stubs, kLimit).error_code(), kResourceExhausted);
  EXPECT_EQ(GetStatus(stubs).error_code(), kOk);
}

// Libraries of clients refuse some of these themselves; peers that are none need not.
TEST(LimitsTest, DeadlinesAtBothEnds) {
  const Daemon daemon;
  const auto trailers = [&](const std::string& timeout) {
    RawConnection raw(daemon.tcp());
    EXPECT_TRUE(raw.AcceptSettings(absl::Seconds(30)));
    raw.Call(1, kGetStatus, 0, timeout);
    raw.Message(1, "");
    raw.HalfClose(1);
    EXPECT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
    return raw.Trailers(1);
  };
  const std::string status("grpc-status\x01");
  EXPECT_THAT(trailers(""), HasSubstr(status + "0"));
  EXPECT_THAT(trailers("60S"), HasSubstr(status + "0"));
  EXPECT_THAT(trailers("99999999H"), HasSubstr(status + "0"));  // the longest there is
  // A call that has nothing to wait for may be over before the library's timer fires.
  for (const char* timeout : {"1n", "0n"}) {
    EXPECT_THAT(trailers(timeout), AnyOf(HasSubstr(status + "4"), HasSubstr(status + "0")));
  }
}

TEST(LimitsTest, CallsOfAConnection) {
  const Daemon daemon({"--connection-calls", "3"});
  const Stubs stubs(daemon);
  auto first = std::make_unique<OpenCall>(stubs);
  OpenCall second(stubs);
  ASSERT_TRUE(first->Answered());
  ASSERT_TRUE(second.Answered());
  EXPECT_EQ(GetStatus(stubs).error_code(), kOk);  // the third
  OpenCall third(stubs);
  ASSERT_TRUE(third.Answered());
  // The fourth waits in the client; another connection has its own.
  std::atomic<bool> ended{false};
  grpc::Status fourth;
  std::jthread caller([&] {
    fourth = GetStatus(stubs);
    ended = true;
  });
  const Stubs other(daemon);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(GetStatus(other).error_code(), kOk);
  EXPECT_FALSE(ended);
  first.reset();
  caller.join();
  EXPECT_EQ(fourth.error_code(), kOk) << fourth.error_message();

  // Who does not wait loses the connection, and nobody else does.
  RawConnection raw(daemon.tcp());
  ASSERT_TRUE(raw.AcceptSettings(absl::Seconds(30)));
  for (uint32_t stream = 1; stream <= 7; stream += 2) {
    raw.Call(stream, "/tetrad.v1.Gemm/ExecuteStream");
  }
  EXPECT_TRUE(raw.WaitForEnd(7, absl::Seconds(30)));
  EXPECT_TRUE(!raw.open() || raw.Refused(7) || raw.going_away());
  EXPECT_TRUE(second.Answered());
}

TEST(LimitsTest, CallsOfAClientOverAllItsConnections) {
  const Daemon daemon({"--client-calls", "3"});
  const Operands operands(kShapeT1, {.seed = 1});
  const Stubs stubs[] = {Stubs(daemon), Stubs(daemon), Stubs(daemon)};
  Register(stubs[0], operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  const auto execute = [&](const Stubs& by) {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return by.gemm->Execute(&context, request, &response);
  };
  OpenCall first(stubs[0]);
  OpenCall second(stubs[1]);
  ASSERT_TRUE(first.Answered());
  ASSERT_TRUE(second.Answered());
  EXPECT_EQ(execute(stubs[2]).error_code(), kOk);
  EXPECT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_clients") == 1; }));
  {
    // A call is over for its client a moment before it is for the daemon.
    std::optional<OpenCall> third;
    ASSERT_TRUE(Eventually([&] { return third.emplace(stubs[2]).Answered(); }));
    const double refused = Metric(daemon, "tetrad_client_calls_refused_total");
    const grpc::Status status = execute(stubs[2]);
    EXPECT_EQ(status.error_code(), kResourceExhausted);
    EXPECT_THAT(status.error_message(), HasSubstr("client_calls: 3"));
    OpenCall fourth(stubs[1]);
    EXPECT_EQ(fourth.Refusal().error_code(), kResourceExhausted);
    EXPECT_EQ(Metric(daemon, "tetrad_client_calls_refused_total"), refused + 2);
    // Another client has its own.
    const Stubs stranger(Connect(daemon.tcp()));
    EXPECT_EQ(execute(stranger).error_code(), kOk);
    EXPECT_TRUE(third->Answered());
  }
  EXPECT_TRUE(Eventually([&] { return execute(stubs[2]).ok(); }));
}

// Operands and reply, to the byte.
TEST(LimitsTest, BytesInline) {
  const Operands operands(kShapeT1, {.seed = 2});
  v1::ExecuteRequest request;
  int64_t bytes = 0;
  {
    const Daemon daemon;
    const Stubs stubs(daemon);
    Register(stubs, operands, "w");
    request = RequestOf(operands, "w");
    const auto& inline_operands = request.inline_operands();
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    ASSERT_TRUE(stubs.gemm->Execute(&context, request, &response).ok());
    bytes = static_cast<int64_t>(
        inline_operands.activations().size() + inline_operands.activation_scales().size() +
        response.output().size() + operands.groups().size() * sizeof(float));  // alpha of each
  }
  for (const int64_t limit : {bytes - 1, bytes, bytes + 1}) {
    const Daemon daemon({"--max-inline-bytes", absl::StrCat(limit)});
    const Stubs stubs(daemon);
    Register(stubs, operands, "w");
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
    EXPECT_EQ(status.error_code(), limit < bytes ? kInvalidArgument : kOk)
        << status.error_message();
    if (limit < bytes) {
      EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("max_inline_bytes is ", limit)));
    }
  }
}

// A few bytes of operands whose reply no gRPC message could carry.
TEST(LimitsTest, ARequestWhoseReplyIsTooLargeIsRefusedBeforeItRuns) {
  const Daemon daemon({"--max-inline-bytes", absl::StrCat(1900ll << 20)});
  const Stubs stubs(daemon);
  const GroupShape shapes[] = {{1, 16384, 32}};
  const Operands operands(shapes, SampleOptions{});
  Register(stubs, operands, "w");
  v1::ExecuteRequest request = RequestOf(operands, "w");
  v1::Signature& signature = *request.mutable_signature();
  signature.set_output_type(v1::OUTPUT_TYPE_FP32);
  for (const int64_t rows : {int64_t{32768}, int64_t{65536}}) {  // 2 and 4 GiB
    signature.mutable_exact()->set_m(0, static_cast<int32_t>(rows));
    request.mutable_inline_operands()->set_activations(
        std::string(static_cast<size_t>(rows) * 16, '\0'));
    request.mutable_inline_operands()->set_activation_scales(
        std::string(static_cast<size_t>(rows) * 4, '\0'));
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
    EXPECT_EQ(status.error_code(), kInvalidArgument) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes"));
  }
  EXPECT_EQ(Metric(daemon, "tetrad_device_seconds_count"), 0);
  EXPECT_LT(Metric(daemon, "process_resident_memory_bytes"), 200e6);
}

// Every five seconds, on an idle connection and on one with a call: four pings,
// of which three would be one too many if they came too early.
TEST(LimitsTest, ClientsMayPingEveryFiveSeconds) {
  const Daemon daemon;
  const auto channel = [&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
    // Above five seconds, in which the library looks at an idle connection once.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    return grpc::CreateCustomChannel(daemon.tcp(), grpc::InsecureChannelCredentials(), arguments);
  };
  const Stubs idle(channel());
  const Stubs busy(channel());
  EXPECT_TRUE(GetStatus(idle).ok());
  OpenCall call(busy);
  ASSERT_TRUE(call.Answered());
  // Idle, and past the daemon's first frames, which forgive pings.
  RawConnection raw(daemon.tcp());
  ASSERT_TRUE(raw.AcceptSettings(absl::Seconds(30)));
  for (int ping = 0; ping < 4; ++ping) {
    raw.Frame(RawConnection::kPing, 0, 0, "pingpong");
    // No event but the passing of time: also that of the channels.
    const absl::Time next = absl::Now() + absl::Milliseconds(5050);
    while (ping < 3 && absl::Now() < next) raw.Receive(next - absl::Now());
  }
  raw.Frame(RawConnection::kPing, RawConnection::kAck, 0, "pingpong");  // fails once it is closed
  while (raw.Receive(absl::Milliseconds(500))) {
  }
  EXPECT_TRUE(raw.open());
  EXPECT_FALSE(raw.going_away());
  for (const Stubs* stubs : {&idle, &busy}) {
    EXPECT_EQ(stubs->channel->GetState(false), GRPC_CHANNEL_READY);
  }
  EXPECT_TRUE(call.Answered());  // the stream of the start
  EXPECT_TRUE(GetStatus(idle).ok());
}

}  // namespace
}  // namespace tetrad::e2e
