// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/client.h"

#include <chrono>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

#include "clients/cpp/status_mapping.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

// Answers what the tests ask for and remembers what it was sent.
class FakeServices final : public v1::Status::Service,
                           public v1::Weights::Service,
                           public v1::Gemm::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_version("1.2.3");
    return grpc::Status::OK;
  }

  grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadRequest>* reader,
                      v1::UploadResponse* response) override {
    v1::UploadRequest request;
    if (!reader->Read(&request) || !request.has_header()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
    }
    if (request.header().name() == "refused") {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "pool: 3 bytes left"};
    }
    response->mutable_weights()->set_name(request.header().name());
    const std::lock_guard lock(mutex);
    while (reader->Read(&request)) {
      const v1::UploadChunk& chunk = request.chunk();
      std::string& operand = chunk.operand() == v1::WEIGHTS_OPERAND_CODES ? codes : scales;
      const size_t end = static_cast<size_t>(chunk.offset()) + chunk.data().size();
      if (operand.size() < end) operand.resize(end);
      operand.replace(static_cast<size_t>(chunk.offset()), chunk.data().size(), chunk.data());
      largest_chunk = std::max(largest_chunk, chunk.data().size());
    }
    return grpc::Status::OK;
  }

  grpc::Status Load(grpc::ServerContext*, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadProgress>* writer) override {
    v1::LoadProgress progress;
    progress.set_bytes_total(100);
    for (const int done : {10, 60, 100}) {
      progress.set_bytes_done(done);
      if (done == 100 && request->name() != "headless") {
        progress.mutable_weights()->set_name(request->name());
        progress.add_notes("tied scales");
      }
      writer->Write(progress);
    }
    return grpc::Status::OK;
  }

  grpc::Status Seal(grpc::ServerContext*, const v1::SealRequest* request,
                    v1::SealResponse* response) override {
    response->mutable_weights()->set_name(request->name());
    response->mutable_weights()->set_version(request->version());
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListWeightsRequest*,
                    v1::ListWeightsResponse* response) override {
    response->add_weights()->set_name("w");
    return grpc::Status::OK;
  }
  grpc::Status Drop(grpc::ServerContext*, const v1::DropRequest* request,
                    v1::DropResponse* response) override {
    if (request->weights() == "none") return {grpc::StatusCode::NOT_FOUND, "weights none"};
    response->set_dropped(2);
    return grpc::Status::OK;
  }

  grpc::Status Prepare(grpc::ServerContext*, const v1::PrepareRequest* request,
                       v1::PrepareResponse* response) override {
    response->set_plan("p1");
    response->set_weights(request->signature().weights());
    return grpc::Status::OK;
  }
  // Echoes the activations; "hang" waits until the caller gives up.
  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    while (request->plan() == "hang" && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (request->plan() == "draining") {
      return {grpc::StatusCode::UNAVAILABLE, "draining", "details"};
    }
    response->set_output(request->inline_operands().activations());
    return grpc::Status::OK;
  }
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    if (request->plan() == "p1") return grpc::Status::OK;
    return {grpc::StatusCode::ABORTED, "stale plan"};
  }

  std::mutex mutex;
  std::string codes, scales;  // guarded by mutex
  size_t largest_chunk = 0;   // guarded by mutex
};

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-client-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    endpoint_ = absl::StrCat("unix:", folder_, "/s");
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1::Status::Service*>(&services_));
    builder.RegisterService(static_cast<v1::Weights::Service*>(&services_));
    builder.RegisterService(static_cast<v1::Gemm::Service*>(&services_));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    auto client = Client::Connect(endpoint_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown();
    std::filesystem::remove_all(folder_);
  }

  std::string folder_, endpoint_;
  FakeServices services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

std::vector<uint8_t> Pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST_F(ClientTest, UploadDeliversEveryByteInChunks) {
  const std::vector<uint8_t> codes = Pattern((5 << 20) + 17), scales = Pattern(4097);
  v1::UploadHeader header;
  header.set_name("w");
  std::vector<int64_t> steps;
  const auto info = client_->Upload(header, codes, scales, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, static_cast<int64_t>(codes.size() + scales.size()));
    steps.push_back(done);
  });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name(), "w");
  const std::lock_guard lock(services_.mutex);
  EXPECT_EQ(services_.codes, std::string(codes.begin(), codes.end()));
  EXPECT_EQ(services_.scales, std::string(scales.begin(), scales.end()));
  EXPECT_LE(services_.largest_chunk, size_t{1} << 20);
  EXPECT_EQ(steps.size(), 7u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.back(), static_cast<int64_t>(codes.size() + scales.size()));
}

TEST_F(ClientTest, RefusedUploadReportsTheDaemonsReason) {
  v1::UploadHeader header;
  header.set_name("refused");
  const auto info = client_->Upload(header, Pattern(64 << 20), {});
  EXPECT_EQ(info.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(info.status().message(), "pool: 3 bytes left");
}

TEST_F(ClientTest, LoadReportsProgressAndTheLastMessage) {
  v1::LoadRequest request;
  request.set_name("w");
  std::vector<int64_t> steps;
  const auto loaded =
      client_->Load(request, [&steps](int64_t done, int64_t) { steps.push_back(done); });
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->weights().name(), "w");
  EXPECT_THAT(loaded->notes(), ::testing::ElementsAre("tied scales"));
  EXPECT_THAT(steps, ::testing::ElementsAre(10, 60, 100));
}

TEST_F(ClientTest, LoadWithoutAResultIsAnError) {
  v1::LoadRequest request;
  request.set_name("headless");
  EXPECT_EQ(client_->Load(request).status().code(), absl::StatusCode::kInternal);
}

TEST_F(ClientTest, UnaryCallsPassFieldsBothWays) {
  EXPECT_EQ(client_->GetStatus()->version(), "1.2.3");
  EXPECT_EQ(client_->Seal("w", 7)->version(), 7);
  EXPECT_EQ(client_->ListWeights()->weights(0).name(), "w");
  EXPECT_EQ(*client_->Drop("w"), 2);
  EXPECT_EQ(client_->Drop("none").status().code(), absl::StatusCode::kNotFound);
  v1::Signature signature;
  signature.set_weights("w@3");
  EXPECT_EQ(client_->Prepare(signature)->weights(), "w@3");
  EXPECT_TRUE(client_->Release("p1").ok());
  EXPECT_EQ(client_->Release("p0").code(), absl::StatusCode::kAborted);
}

TEST_F(ClientTest, PayloadsBeyondGrpcsDefaultLimitPass) {
  const std::vector<uint8_t> bytes = Pattern(16 << 20);
  v1::ExecuteRequest request;
  request.mutable_inline_operands()->set_activations(bytes.data(), bytes.size());
  const auto response = client_->Execute(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->output(), request.inline_operands().activations());
}

TEST_F(ClientTest, UnavailableNamesTheEndpointAndKeepsDetails) {
  v1::ExecuteRequest request;
  request.set_plan("draining");
  const absl::Status status = client_->Execute(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat(endpoint_, ": draining"));
  EXPECT_EQ(std::string(*status.GetPayload(kStatusDetailsUrl)), "details");
}

TEST_F(ClientTest, DeadlineEndsACall) {
  v1::ExecuteRequest request;
  request.set_plan("hang");
  const absl::Time start = absl::Now();
  const auto response =
      client_->Execute(request, {.deadline = absl::Milliseconds(100), .cancel = {}});
  EXPECT_EQ(response.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST_F(ClientTest, StopRequestCancelsACall) {
  std::stop_source stop;
  std::jthread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  v1::ExecuteRequest request;
  request.set_plan("hang");
  const CallOptions call{.deadline = absl::ZeroDuration(), .cancel = stop.get_token()};
  EXPECT_EQ(client_->Execute(request, call).status().code(), absl::StatusCode::kCancelled);
  // A stop requested earlier cancels at once.
  EXPECT_EQ(client_->GetStatus(call).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, CallsOfManyThreadsOverlap) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        v1::ExecuteRequest request;
        request.mutable_inline_operands()->set_activations(absl::StrCat(t, ".", i));
        const auto response = client_->Execute(request);
        ASSERT_TRUE(response.ok()) << response.status();
        EXPECT_EQ(response->output(), absl::StrCat(t, ".", i));
      }
    });
  }
}

TEST(ClientConnectTest, RefusesQuicklyAndSaysWhy) {
  EXPECT_EQ(Client::Connect("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::Connect("unix:/nonexistent/s").status().code(), absl::StatusCode::kNotFound);
  const absl::Time start = absl::Now();
  const absl::Status refused = Client::Connect("127.0.0.1:1").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("127.0.0.1:1"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

}  // namespace
}  // namespace tetrad
