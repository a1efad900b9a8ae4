// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clients that stand still in the middle of a stream, or take no more of what
// they asked for: they are ended, and what they held is given back. Those that
// are idle or slow are not.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/memory_client.h"
#include "tests/e2e/raw_connection.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

constexpr auto kDeadlineExceeded = grpc::StatusCode::DEADLINE_EXCEEDED;

// As gRPC writes a status of 4 that is the first of its connection.
const std::string kRawDeadlineExceeded(
    "grpc-status\x01"
    "4");

class StallTest : public ::testing::Test {
 protected:
  double Stalled(const std::string& method) {
    return Metric(daemon_,
                  absl::StrCat("tetrad_stalled_streams_total{method=\"tetrad.v1.", method, "\"}"));
  }
  // Header of an upload that is never finished, and how that ended.
  grpc::Status AbandonedUpload(const std::string& name) {
    const Operands operands(kShapeT1, {.seed = 1});
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::UploadResponse response;
    const auto writer = stubs_.weights->Upload(&context, &response);
    EXPECT_TRUE(writer->Write(UploadMessagesOf(operands, name).front()));
    return writer->Finish();
  }
  // Operands whose reply is `columns` * 128 FP32 numbers, registered as "large".
  v1::ExecuteRequest LargeReply(int32_t columns) {
    const GroupShape shapes[] = {{128, columns, 32}};
    SampleOptions options;
    options.types.c_type = OutputType::kFp32;
    const Operands operands(shapes, options);
    Register(stubs_, operands, "large");
    return RequestOf(operands, "large");
  }
  void ExpectNothingHeld() {
    EXPECT_TRUE(Eventually([&] { return Held(daemon_, *client_) == idle_; }))
        << Held(daemon_, *client_);
    EXPECT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_clients") == 0; }));
  }

  const Daemon daemon_{{"--progress-seconds", "1", "--stream-in-flight", "4"}};
  const Stubs stubs_{Connect(daemon_.tcp())};
  const std::unique_ptr<Client> client_ = ConnectClient(daemon_.tcp());
  const std::string idle_ = Held(daemon_, *client_);
};

TEST_F(StallTest, AnUploadThatSendsNothingMoreIsForgotten) {
  const grpc::Status status = AbandonedUpload("w");
  EXPECT_EQ(status.error_code(), kDeadlineExceeded) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("progress_seconds"));
  EXPECT_EQ(Stalled("Weights/Upload"), 1);
  EXPECT_EQ(Metric(daemon_, "tetrad_weights_versions"), 0);
  EXPECT_EQ(Metric(daemon_,
                   "tetrad_requests_total{method=\"tetrad.v1.Weights/Upload\","
                   "code=\"DEADLINE_EXCEEDED\"}"),
            1);
  ExpectNothingHeld();
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs_, operands, "w");
  ExecuteAndVerify(stubs_, operands, RequestOf(operands, "w"));
}

TEST_F(StallTest, AMessageThatNeverEndsIsNoProgress) {
  RawConnection raw(daemon_.tcp());
  raw.Call(1, "/tetrad.v1.Weights/Upload");
  raw.PartOfMessage(1, 1000, 100'000);
  ASSERT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
  EXPECT_THAT(raw.Trailers(1), HasSubstr(kRawDeadlineExceeded));
  EXPECT_EQ(Stalled("Weights/Upload"), 1);
  ExpectNothingHeld();
}

TEST_F(StallTest, AWriteThatSendsNothingMoreIsEnded) {
  const auto attachment = AttachTo(*client_);
  v1::AllocateRequest allocate;
  allocate.set_lease(attachment->lease());
  allocate.set_bytes(4096);
  v1::AllocateResponse block;
  grpc::ClientContext allocate_context;
  ASSERT_TRUE(stubs_.memory->Allocate(&allocate_context, allocate, &block).ok());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::WriteResponse response;
  const auto writer = stubs_.memory->Write(&context, &response);
  v1::WriteRequest message;
  message.set_block(block.block().block());
  message.set_data("1234");
  ASSERT_TRUE(writer->Write(message));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), kDeadlineExceeded) << status.error_message();
  EXPECT_EQ(Stalled("Memory/Write"), 1);
  EXPECT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_call_bytes") == 0; }));
}

// Half a second of pauses in all for every second that is allowed.
TEST_F(StallTest, WhoIsSlowOrIdleIsLeftAlone) {
  const Operands operands(kShapeT1, {.seed = 2});
  Register(stubs_, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  grpc::ClientContext stream_context;
  const auto stream = stubs_.gemm->ExecuteStream(&stream_context);
  const auto answered = [&](uint64_t id) {
    v1::ExecuteStreamRequest message;
    message.set_id(id);
    *message.mutable_execute() = request;
    v1::ExecuteStreamResponse answer;
    return stream->Write(message) && stream->Read(&answer) && answer.code() == 0;
  };
  ASSERT_TRUE(answered(1));
  const auto attachment = AttachTo(*client_);
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = stubs_.weights->Upload(&context, &response);
  const UploadMessages messages = UploadMessagesOf(operands, "slow", 4 << 10);
  const auto pause = std::chrono::milliseconds(2500) / messages.size();
  for (const v1::UploadRequest& message : messages) {
    ASSERT_TRUE(writer->Write(message));
    std::this_thread::sleep_for(pause);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  // Two that stand still have come to their end meanwhile, so time has passed.
  AbandonedUpload("abandoned");
  AbandonedUpload("abandoned");
  EXPECT_TRUE(answered(2));
  EXPECT_TRUE(client_->GetStatus().ok());
  EXPECT_EQ(Metric(daemon_, "tetrad_open_streams{kind=\"attach\"}"), 1);
  EXPECT_EQ(Stalled("Gemm/ExecuteStream"), 0);
  EXPECT_EQ(Stalled("Memory/Attach"), 0);
  EXPECT_EQ(Stalled("Weights/Upload"), 2);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StallTest, AnswersThatNobodyTakesEndTheirStream) {
  v1::ExecuteStreamRequest message;
  *message.mutable_execute() = LargeReply(1024);  // 512 KiB
  RawConnection raw(daemon_.tcp());
  raw.Call(1, "/tetrad.v1.Gemm/ExecuteStream");
  for (uint64_t id = 1; id <= 6; ++id) {
    message.set_id(id);
    raw.Message(1, message.SerializeAsString());
  }
  ASSERT_TRUE(Eventually([&] { return Stalled("Gemm/ExecuteStream") == 1; }));
  ExpectNothingHeld();
  // The reason goes past what the window keeps back.
  ASSERT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
  EXPECT_THAT(raw.Trailers(1), HasSubstr(kRawDeadlineExceeded));
  EXPECT_EQ(Metric(daemon_, "tetrad_open_streams{kind=\"execute\"}"), 0);
  // Not because the connection ended: on it, another call is answered as soon as
  // there is room for it.
  raw.Frame(RawConnection::kWindowUpdate, 0, 0, std::string("\0\x10\0\0", 4));
  raw.Call(3, "/tetrad.v1.Status/GetStatus");
  raw.Message(3, "");
  raw.HalfClose(3);
  EXPECT_TRUE(raw.WaitForEnd(3, absl::Seconds(30)));
  EXPECT_TRUE(raw.open());
}

TEST_F(StallTest, AReplyThatNobodyTakesIsGivenUp) {
  const v1::ExecuteRequest request = LargeReply(2048);  // 1 MiB: a second more
  RawConnection raw(daemon_.tcp());
  raw.Call(1, "/tetrad.v1.Gemm/Execute");
  raw.Message(1, request.SerializeAsString());
  raw.HalfClose(1);
  ASSERT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_call_bytes") >= 2 << 20; }));
  ASSERT_TRUE(Eventually([&] { return Stalled("Gemm/Execute") == 1; }));
  ExpectNothingHeld();
  ASSERT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
  EXPECT_THAT(raw.Trailers(1), HasSubstr(kRawDeadlineExceeded));
}

TEST_F(StallTest, ABlockThatNobodyTakesIsGivenUp) {
  const auto attachment = AttachTo(*client_);
  const std::string attached = Held(daemon_, *client_);
  v1::AllocateRequest allocate;
  allocate.set_lease(attachment->lease());
  allocate.set_bytes(4 << 20);
  v1::AllocateResponse block;
  grpc::ClientContext context;
  ASSERT_TRUE(stubs_.memory->Allocate(&context, allocate, &block).ok());
  v1::ReadRequest request;
  request.set_block(block.block().block());
  RawConnection raw(daemon_.tcp());
  raw.Call(1, "/tetrad.v1.Memory/Read");
  raw.Message(1, request.SerializeAsString());
  raw.HalfClose(1);
  ASSERT_TRUE(Eventually([&] { return Stalled("Memory/Read") == 1; }));
  EXPECT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_call_bytes") == 0; }));
  ASSERT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
  EXPECT_THAT(raw.Trailers(1), HasSubstr(kRawDeadlineExceeded));
}

// It grants nothing at all, so even the first event finds no way.
TEST_F(StallTest, AnAttachmentThatTakesNoEventLosesItsLease) {
  RawConnection raw(daemon_.tcp(), RawConnection::Begin::kNothing);
  raw.Send(RawConnection::Preface());
  raw.Frame(RawConnection::kSettings, 0, 0, std::string("\0\x04\0\0\0\0", 6));
  raw.Call(1, "/tetrad.v1.Memory/Attach");
  raw.Message(1, "");
  raw.HalfClose(1);
  ASSERT_TRUE(Eventually([&] { return Stalled("Memory/Attach") == 1; }));
  EXPECT_TRUE(
      Eventually([&] { return Metric(daemon_, "tetrad_leases{state=\"attached\"}") == 0; }));
  ASSERT_TRUE(raw.WaitForEnd(1, absl::Seconds(30)));
  EXPECT_THAT(raw.Trailers(1), HasSubstr(kRawDeadlineExceeded));
}

}  // namespace
}  // namespace tetrad::e2e
