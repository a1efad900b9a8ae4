// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clients that make the daemon hold memory without ever finishing a request:
// what it holds is bounded, and others are served.
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/raw_connection.h"

namespace tetrad::e2e {
namespace {

constexpr size_t kMiB = 1 << 20;

// A call of Execute that never comes to its end.
class StalledCall {
 public:
  explicit StalledCall(const std::string& address) : connection_(address) {
    connection_.Call(1, "/tetrad.v1.Gemm/Execute");
  }
  // A whole message, whose reply is then never read.
  void Ask(const v1::ExecuteRequest& request) {
    connection_.Message(1, request.SerializeAsString());
    connection_.HalfClose(1);
  }
  // The first `bytes` of a message of `message_bytes`.
  void Send(size_t bytes, uint32_t message_bytes) {
    connection_.PartOfMessage(1, bytes, message_bytes);
  }

 private:
  RawConnection connection_;
};

size_t ResidentBytes(const Daemon& daemon) {
  for (const auto line : absl::StrSplit(HttpGet(daemon.http(), "/metrics"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(std::string(line), ' ');
    double value = 0;
    if (words.front() == "process_resident_memory_bytes" &&
        absl::SimpleAtod(words.back(), &value)) {
      return static_cast<size_t>(value);
    }
  }
  ADD_FAILURE() << "no process_resident_memory_bytes";
  return 0;
}

TEST(MemoryTest, MessagesThatNeverEndAreBoundedAndOthersAreServed) {
  const Daemon daemon(
      {"--staging-bytes", absl::StrCat(64 * kMiB), "--max-inline-bytes", absl::StrCat(32 * kMiB)});
  const GroupShape kShapes[] = {{5, 24, 96}};
  const Operands operands(kShapes, SampleOptions{});
  const Stubs stubs(daemon);
  Register(stubs, operands, "w");
  std::vector<std::unique_ptr<StalledCall>> calls;
  for (int i = 0; i < 12; ++i) {
    calls.push_back(std::make_unique<StalledCall>(daemon.tcp()));
    calls.back()->Send(60 * kMiB, 90 * kMiB);
  }
  // 720 MiB were offered, 64 + 32 + 64 MiB are what may wait.
  EXPECT_LT(ResidentBytes(daemon), 320 * kMiB);
  // Idle connections may have been closed to make room, so with a new one.
  ExecuteAndVerify(Stubs(daemon), operands, RequestOf(operands, "w"));
}

// No retry helps: it is told apart from a lack that passes.
TEST(MemoryTest, ACallThatCouldNeverHaveItsBytesIsInvalid) {
  const Daemon daemon({"--call-bytes", "65536"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  v1::ExecuteRequest request = RequestOf(operands, "w");
  request.mutable_inline_operands()->mutable_activations()->resize(100'000);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_NE(status.error_message().find("call_bytes"), std::string::npos);
}

// A reply of 24 MiB to a request of a few KiB, asked for and not read.
TEST(MemoryTest, RepliesThatNobodyReadsAreBoundedAndReturned) {
  const Daemon daemon({"--call-bytes", absl::StrCat(112 * kMiB)});
  const GroupShape kShapes[] = {{128, 49152, 32}};
  SampleOptions options;
  options.kind = DataKind::kContest;
  options.types.c_type = OutputType::kFp32;
  const Operands operands(kShapes, options);
  const Stubs stubs(daemon);
  Register(stubs, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  std::vector<std::unique_ptr<StalledCall>> calls;
  const auto outcome = [&] {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return stubs.gemm->Execute(&context, request, &response).error_code();
  };
  EXPECT_EQ(outcome(), grpc::StatusCode::OK);
  // Two replies of 2 x 24 MiB fit; the third and later calls find no room.
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<StalledCall>(daemon.tcp()));
    calls.back()->Ask(request);
  }
  const absl::Time until = absl::Now() + absl::Seconds(60);
  while (outcome() != grpc::StatusCode::RESOURCE_EXHAUSTED && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  // Before it runs: what has been computed is not thrown away.
  const auto executed = [&] { return Metric(daemon, "tetrad_device_seconds_count"); };
  ASSERT_TRUE(Eventually([&] { return Metric(daemon, "tetrad_launches_in_flight") == 0; }));
  const double before = executed();
  EXPECT_EQ(outcome(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(executed(), before);
  EXPECT_LT(ResidentBytes(daemon), 500 * kMiB);
  calls.clear();  // the connections end, and what they held is free again
  while (outcome() != grpc::StatusCode::OK && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(outcome(), grpc::StatusCode::OK);
}

// Small on the wire, large in memory: refused before it is unpacked.
TEST(MemoryTest, CompressedMessagesAreRefusedUnread) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  v1::ExecuteRequest request;
  request.mutable_inline_operands()->set_activations(std::string(200 * kMiB, '\0'));
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::ExecuteResponse response;
    const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_LT(ResidentBytes(daemon), 100 * kMiB);
}

}  // namespace
}  // namespace tetrad::e2e
