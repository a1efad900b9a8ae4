// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Leases, blocks and ExecuteStream of the client, against a fake daemon.
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/memory.grpc.pb.h"

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"
#include "clients/cpp/execute_stream.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

// Attach streams stay until told to drain or to end; blocks are strings.
class FakeMemory final : public v1::Memory::Service {
 public:
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      grpc::ServerWriter<v1::AttachEvent>* writer) override {
    if (request->resume() == "gone") return {grpc::StatusCode::ABORTED, "lease: has ended"};
    while (request->resume() == "silent" && !context->IsCancelled()) Pause();
    v1::AttachEvent event;
    event.set_lease("lease-1");
    event.set_grace_seconds(2.5);
    event.set_resumed(!request->resume().empty());
    writer->Write(event);
    std::unique_lock lock(mutex);
    ++attached;
    changed.notify_all();
    bool told = false;
    while (!context->IsCancelled() && !ended) {
      if (draining && !std::exchange(told, true)) {
        event.set_draining(true);
        writer->Write(event);
      }
      changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    --attached;
    changed.notify_all();
    return end_status;
  }
  grpc::Status Detach(grpc::ServerContext*, const v1::DetachRequest* request,
                      v1::DetachResponse*) override {
    return {grpc::StatusCode::PERMISSION_DENIED, request->lease()};
  }
  grpc::Status Allocate(grpc::ServerContext*, const v1::AllocateRequest* request,
                        v1::AllocateResponse* response) override {
    response->mutable_block()->set_block("block-1");
    response->mutable_block()->set_lease(request->lease());
    response->mutable_block()->set_bytes(request->bytes());
    block.assign(static_cast<size_t>(request->bytes()), '\0');
    return grpc::Status::OK;
  }
  grpc::Status Write(grpc::ServerContext*, grpc::ServerReader<v1::WriteRequest>* reader,
                     v1::WriteResponse* response) override {
    v1::WriteRequest message;
    size_t at = 0;
    for (bool first = true; reader->Read(&message); first = false) {
      if (first != (message.block() == "block-1")) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "block"};
      }
      if (first) at = static_cast<size_t>(message.offset());
      if (at + message.data().size() > block.size()) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "beyond the block"};
      }
      largest_piece = std::max(largest_piece, message.data().size());
      block.replace(at, message.data().size(), message.data());
      at += message.data().size();
    }
    response->set_bytes(static_cast<int64_t>(at));
    return grpc::Status::OK;
  }
  grpc::Status Read(grpc::ServerContext*, const v1::ReadRequest* request,
                    grpc::ServerWriter<v1::ReadResponse>* writer) override {
    // An offset of 1 gets a byte less than asked for, 2 a byte more.
    const int64_t wrong = request->offset() == 1 ? -1 : request->offset() == 2 ? 1 : 0;
    std::string wanted = block.substr(static_cast<size_t>(request->offset()),
                                      static_cast<size_t>(request->bytes() + wrong));
    for (size_t at = 0; at < wanted.size(); at += 1000) {
      v1::ReadResponse piece;
      piece.set_data(wanted.substr(at, 1000));
      writer->Write(piece);
    }
    return grpc::Status::OK;
  }
  grpc::Status Free(grpc::ServerContext*, const v1::FreeRequest* request,
                    v1::FreeResponse*) override {
    return request->block() == "block-1" ? grpc::Status::OK
                                         : grpc::Status(grpc::StatusCode::ABORTED, "stale");
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListBlocksRequest* request,
                    v1::ListBlocksResponse* response) override {
    response->add_blocks()->set_lease(request->lease());
    return grpc::Status::OK;
  }

  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(30), condition);
  }
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

  std::mutex mutex;
  std::condition_variable changed;
  int attached = 0;         // guarded by mutex
  bool draining = false;    // guarded by mutex
  bool ended = false;       // guarded by mutex
  grpc::Status end_status;  // guarded by mutex
  std::string block;
  size_t largest_piece = 0;
};

// Answers a request when the next one comes, so in another order than asked.
class FakeGemm final : public v1::Gemm::Service {
 public:
  grpc::Status ExecuteStream(grpc::ServerContext*,
                             grpc::ServerReaderWriter<v1::ExecuteStreamResponse,
                                                      v1::ExecuteStreamRequest>* stream) override {
    std::map<uint64_t, v1::ExecuteStreamRequest> waiting;
    v1::ExecuteStreamRequest message;
    const auto answer = [&](const v1::ExecuteStreamRequest& request, int code) {
      v1::ExecuteStreamResponse out;
      out.set_id(request.id());
      out.set_code(code);
      out.mutable_response()->set_weights(request.execute().weights());
      out.mutable_response()->set_floor_us(request.timeout_seconds());
      stream->Write(out);
    };
    while (stream->Read(&message)) {
      if (message.has_cancel()) {
        answer(waiting[message.id()], 1);
        waiting.erase(message.id());
      } else if (message.execute().weights() == "at-once") {
        answer(message, 0);
      } else if (message.execute().weights() == "end") {
        return {grpc::StatusCode::UNAVAILABLE, "draining"};
      } else {
        waiting[message.id()] = message;
      }
    }
    for (const auto& [id, request] : waiting) answer(request, 0);
    return grpc::Status::OK;
  }
};

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-client-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    endpoint_ = absl::StrCat("unix:", folder_, "/s");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&memory_);
    builder.RegisterService(&gemm_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    auto client = Client::Connect(endpoint_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    std::filesystem::remove_all(folder_);
  }

  std::string folder_, endpoint_;
  FakeMemory memory_;
  FakeGemm gemm_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(MemoryTest, AttachmentHoldsTheStreamAndLetsItGo) {
  auto attachment = client_->Attach();
  ASSERT_TRUE(attachment.ok()) << attachment.status();
  EXPECT_EQ((*attachment)->lease(), "lease-1");
  EXPECT_EQ((*attachment)->grace(), absl::Seconds(2.5));
  EXPECT_FALSE((*attachment)->resumed());
  EXPECT_TRUE((*attachment)->status().ok());
  EXPECT_TRUE(memory_.Wait([this] { return memory_.attached == 1; }));
  client_.reset();  // the attachment does not need it
  EXPECT_FALSE((*attachment)->lost().stop_requested());
  attachment->reset();
  EXPECT_TRUE(memory_.Wait([this] { return memory_.attached == 0; }));
}

TEST_F(MemoryTest, AttachmentTellsOfADrainAndOfItsEnd) {
  auto attachment = client_->Attach("lease-1");
  ASSERT_TRUE(attachment.ok()) << attachment.status();
  EXPECT_TRUE((*attachment)->resumed());
  EXPECT_FALSE((*attachment)->draining());
  const auto set = [this](bool& flag) {
    std::lock_guard lock(memory_.mutex);
    flag = true;
    memory_.end_status = {grpc::StatusCode::UNAVAILABLE, "shutting down"};
    memory_.changed.notify_all();
  };
  set(memory_.draining);
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (!(*attachment)->draining() && absl::Now() < limit) FakeMemory::Pause();
  EXPECT_TRUE((*attachment)->draining());
  EXPECT_TRUE((*attachment)->status().ok());
  std::mutex mutex;
  std::condition_variable_any lost;
  std::unique_lock lock(mutex);
  set(memory_.ended);
  lost.wait_for(lock, (*attachment)->lost(), std::chrono::seconds(30), [] { return false; });
  EXPECT_TRUE((*attachment)->lost().stop_requested());
  EXPECT_EQ((*attachment)->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string((*attachment)->status().message()), HasSubstr("shutting down"));
}

TEST_F(MemoryTest, AttachFailsWithTheDaemonsReasonOrInTime) {
  EXPECT_EQ(client_->Attach("gone").status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(
      client_->Attach("silent", {.deadline = absl::Milliseconds(50), .cancel = {}}).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(client_->Attach("silent", {.deadline = {}, .cancel = stop.get_token()}).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(MemoryTest, BlocksAreWrittenAndReadWhole) {
  EXPECT_EQ(client_->Detach("lease-7").code(), absl::StatusCode::kPermissionDenied);
  const auto block = client_->Allocate("lease-1", (2 << 20) + 100);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->lease(), "lease-1");
  std::vector<uint8_t> data((2 << 20) + 90);
  std::iota(data.begin(), data.end(), uint8_t{3});
  ASSERT_TRUE(client_->Write(block->block(), 10, data).ok());
  EXPECT_EQ(memory_.block, std::string(10, '\0') + std::string(data.begin(), data.end()));
  EXPECT_LE(memory_.largest_piece, 1u << 20);
  std::vector<uint8_t> out(data.size());
  ASSERT_TRUE(client_->Read(block->block(), 10, out).ok());
  EXPECT_EQ(out, data);
  EXPECT_TRUE(client_->Write(block->block(), 0, {}).ok());
  EXPECT_TRUE(client_->Read(block->block(), 0, {}).ok());
  EXPECT_EQ(client_->Write(block->block(), 11, data).code(), absl::StatusCode::kInvalidArgument);
  out.resize(5000);
  EXPECT_EQ(client_->Read(block->block(), 1, out).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(client_->Read(block->block(), 2, out).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(client_->Free("block-1").ok());
  EXPECT_EQ(client_->Free("block-2").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client_->ListBlocks("lease-1")->blocks(0).lease(), "lease-1");
}

v1::ExecuteRequest Named(const char* weights) {
  v1::ExecuteRequest request;
  request.set_weights(weights);
  return request;
}

TEST_F(MemoryTest, StreamAnswersInTheOrderOfTheDaemon) {
  const auto stream = client_->OpenExecuteStream();
  EXPECT_TRUE(stream->Submit(7, Named("later"), absl::Seconds(1.5)));
  EXPECT_TRUE(stream->Submit(8, Named("cancelled")));
  EXPECT_TRUE(stream->Submit(9, Named("at-once")));
  EXPECT_EQ(stream->Next()->id(), 9u);
  EXPECT_TRUE(stream->Cancel(8));
  const auto cancelled = stream->Next();
  ASSERT_TRUE(cancelled.has_value());
  EXPECT_EQ(cancelled->id(), 8u);
  EXPECT_EQ(cancelled->code(), 1);
  stream->Close();
  const auto later = stream->Next();
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(later->id(), 7u);
  EXPECT_EQ(later->response().weights(), "later");
  EXPECT_EQ(later->response().floor_us(), 1.5);
  EXPECT_FALSE(stream->Next().has_value());
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(MemoryTest, StreamThatEndsEarlySaysWhy) {
  const auto stream = client_->OpenExecuteStream();
  EXPECT_TRUE(stream->Submit(1, Named("end")));
  EXPECT_FALSE(stream->Next().has_value());
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(stream->Finish().message()), HasSubstr(endpoint_));
  EXPECT_FALSE(stream->Submit(2, Named("too late")));
  const auto abandoned = client_->OpenExecuteStream();
  EXPECT_TRUE(abandoned->Submit(1, Named("never answered")));
  EXPECT_EQ(abandoned->Finish().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tetrad
