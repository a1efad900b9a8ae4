// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What clients hold outlives their connection by the grace time, and not by a
// byte more, whatever they were doing when they went.
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/doomed_process.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

// One group of N 4096 and K 2048, for the client to be killed.
std::string RegisterForDoomed(const Stubs& stubs) {
  const GroupShape kShape[] = {{1, 4096, 2048}};
  return Register(stubs, Operands(kShape, {.kind = DataKind::kContest}), "doomed");
}

TEST(LeaseTest, ResumedWithinTheGraceTimeItHasAllItHeld) {
  const Daemon daemon({"--lease-grace-seconds", "600"});
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  auto attachment = AttachTo(*client);
  EXPECT_FALSE(attachment->resumed());
  EXPECT_EQ(attachment->grace(), absl::Seconds(600));
  const std::string lease = attachment->lease();
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  PlacedOperands placed(*client, operands, "w", lease);
  ASSERT_TRUE(client->Execute(placed.request).ok());
  const std::string held = Held(daemon, *client);

  // A second stream takes the lease from the first, whose end then means nothing.
  auto newer = AttachTo(*client, lease);
  ASSERT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
  EXPECT_EQ(attachment->status().code(), absl::StatusCode::kAborted);
  attachment.reset();
  EXPECT_EQ(client->GetStatus()->detached_leases(), 0);

  newer.reset();
  ASSERT_TRUE(Eventually([&] { return client->GetStatus()->detached_leases() == 1; }));
  // Its blocks and handles work in the grace time, too, from any connection.
  const auto other = ConnectClient(daemon.socket());
  placed.Verify(*other);
  placed.Clear(*other);
  ASSERT_TRUE(other->Execute(placed.request).ok());
  attachment = AttachTo(*other, lease);
  EXPECT_TRUE(attachment->resumed());
  EXPECT_EQ(attachment->lease(), lease);
  placed.Verify(*other);
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == held; })) << Held(daemon, *client);
  EXPECT_EQ(other->ListBlocks(lease)->blocks_size(), 1);
}

TEST(LeaseTest, AfterTheGraceTimeNothingIsLeft) {
  const Daemon daemon({"--lease-grace-seconds", "1"});
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  const Operands operands(kShapeT1, {.seed = 2});
  Register(stubs, operands, "w");
  const std::string idle = Held(daemon, *client);
  const int64_t used =
      client->GetStatus()->pool().block_bytes() + client->GetStatus()->pool().whole_bytes();
  auto attachment = AttachTo(*client);
  const std::string lease = attachment->lease();
  PlacedOperands placed(*client, operands, "w", lease);
  for (const int64_t bytes : {int64_t{1}, int64_t{5000}, int64_t{100} << 20}) {
    ASSERT_TRUE(client->Allocate(lease, bytes).ok());
  }
  EXPECT_EQ(client->GetStatus()->blocks(), 4);
  attachment.reset();
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == idle; })) << Held(daemon, *client);
  const auto status = client->GetStatus();
  EXPECT_EQ(status->pool().block_bytes() + status->pool().whole_bytes(), used);
  EXPECT_EQ(Metric(daemon, "tetrad_leases_expired_total"), 1);
  EXPECT_EQ(client->Attach(lease).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client->Free(placed.block).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client->Execute(placed.request).status().code(), absl::StatusCode::kAborted);
}

TEST(LeaseTest, DetachEndsTheStreamAndFreesAtOnce) {
  const Daemon daemon({"--lease-grace-seconds", "3600"});
  const auto client = ConnectClient(daemon.socket());
  const std::string idle = Held(daemon, *client);
  const auto attachment = AttachTo(*client);
  ASSERT_TRUE(client->Allocate(attachment->lease(), 1 << 20).ok());
  ASSERT_TRUE(client->Detach(attachment->lease()).ok());
  EXPECT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
  EXPECT_EQ(attachment->status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == idle; })) << Held(daemon, *client);
  EXPECT_EQ(Metric(daemon, "tetrad_leases_expired_total"), 0);
}

TEST(LeaseTest, KilledClientsLeaveNothing) {
  const Daemon daemon({"--lease-grace-seconds", "1"});
  const Stubs stubs(daemon);
  const std::string weights = RegisterForDoomed(stubs);
  const auto client = ConnectClient(daemon.socket());
  const std::string idle = Held(daemon, *client);
  for (const char* mode : {"hold", "write", "stream"}) {
    for (const std::string& address : {daemon.socket(), daemon.tcp()}) {
      SCOPED_TRACE(absl::StrCat(mode, " ", address));
      DoomedProcess doomed(DOOMED_CLIENT, address, mode, weights);
      EXPECT_EQ(client->GetStatus()->blocks(), 1);
      EXPECT_EQ(client->GetStatus()->plan_handles(), 1);
      doomed.Kill();
      EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == idle; }))
          << Held(daemon, *client);
    }
  }
  EXPECT_EQ(Metric(daemon, "tetrad_leases_expired_total"), 6);
}

// A client that asks for much and reads nothing: what waits for it is bounded,
// others are served, and when it goes all is as before.
TEST(LeaseTest, ReadersThatStandStillHoldOnePieceEach) {
  const Daemon daemon({"--lease-grace-seconds", "1"});
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  const Operands operands(kShapeT1, {.seed = 3});
  Register(stubs, operands, "w");
  const auto attachment = AttachTo(*client);
  const auto block = client->Allocate(attachment->lease(), 256 << 20);
  ASSERT_TRUE(block.ok()) << block.status();
  const std::string held = Held(daemon, *client);
  v1::ReadRequest request;
  request.set_block(block->block());
  constexpr int kReaders = 4;
  grpc::ClientContext contexts[kReaders];
  std::unique_ptr<grpc::ClientReader<v1::ReadResponse>> readers[kReaders];
  v1::ReadResponse piece;
  for (int i = 0; i < kReaders; ++i) {
    readers[i] = stubs.memory->Read(&contexts[i], request);
    ASSERT_TRUE(readers[i]->Read(&piece));
    EXPECT_EQ(piece.data().size(), 1u << 20);
  }
  EXPECT_EQ(Metric(daemon, "tetrad_call_bytes"), kReaders * 2 << 20);
  const auto other = ConnectClient(daemon.socket());
  ExecuteAndVerify(Stubs(daemon), operands, RequestOf(operands, "w"));
  for (int i = 0; i < kReaders; ++i) contexts[i].TryCancel();
  for (auto& reader : readers) EXPECT_FALSE(reader->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == held; })) << Held(daemon, *client);
}

TEST(LeaseTest, StreamsGivenUpHalfwayLeaveNothing) {
  const Daemon daemon({"--lease-grace-seconds", "600", "--threads", "1"});
  const Stubs stubs(daemon);
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  const auto block = client->Allocate(attachment->lease(), 1 << 20);
  ASSERT_TRUE(block.ok()) << block.status();
  const std::string held = Held(daemon, *client);
  {
    grpc::ClientContext context;
    v1::WriteResponse response;
    const auto writer = stubs.memory->Write(&context, &response);
    v1::WriteRequest message;
    message.set_block(block->block());
    message.set_data("half");
    ASSERT_TRUE(writer->Write(message));
    // What has arrived is written, also before the stream ends.
    std::vector<uint8_t> bytes(4);
    EXPECT_TRUE(
        Eventually([&] { return client->Read(block->block(), 0, bytes).ok() && bytes[3] == 'f'; }));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  {
    grpc::ClientContext context;
    const auto stream = stubs.gemm->ExecuteStream(&context);
    v1::ExecuteStreamRequest message;
    *message.mutable_execute() = slow;
    for (uint64_t id = 0; id < 6; ++id) {
      message.set_id(id);
      ASSERT_TRUE(stream->Write(message));
    }
    ASSERT_TRUE(Eventually([&] { return client->GetStatus()->in_flight() >= 4; }));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == held; })) << Held(daemon, *client);
  EXPECT_GE(Metric(daemon, "tetrad_launches_total{outcome=\"cancelled\"}"), 4);
}

// Nothing closes the connection of a process that stands still: the daemon's
// pings find out, in less than a minute.
TEST(LeaseTest, ClientsThatStandStillAreDetached) {
  const Daemon daemon({"--lease-grace-seconds", "600"});
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);  // one that only waits, and stays
  DoomedProcess doomed(DOOMED_CLIENT, daemon.tcp(), "hold", RegisterForDoomed(stubs));
  EXPECT_EQ(client->GetStatus()->leases(), 2);
  doomed.Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  while (client->GetStatus()->detached_leases() == 0 &&
         absl::Now() < stopped + absl::Seconds(120)) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(client->GetStatus()->detached_leases(), 1);
  EXPECT_TRUE(attachment->status().ok()) << attachment->status();
  std::printf("detached after %s\n", absl::FormatDuration(absl::Now() - stopped).c_str());
}

}  // namespace
}  // namespace tetrad::e2e
