// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls about tickets, against a service that answers what it was asked.
#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tetrad/v1/gemm.grpc.pb.h"

#include "clients/cpp/client.h"

namespace tetrad {
namespace {

class FakeGemm final : public v1::Gemm::Service {
 public:
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    response->set_ticket(absl::StrCat("t-", request->idempotency_key()));
    response->set_repeated(true);
    return grpc::Status::OK;
  }
  // Tells how many seconds the call may take.
  grpc::Status Wait(grpc::ServerContext* context, const v1::WaitRequest* request,
                    v1::WaitResponse* response) override {
    const std::chrono::duration<double> left =
        context->deadline() - std::chrono::system_clock::now();
    waits_.push_back(request->timeout_seconds());
    if (request->ticket() == "broken" && waits_.size() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    }
    response->set_done(request->forget());
    response->set_code(5);
    response->mutable_response()->set_floor_us(left.count());
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::TicketEvent>* writer) override {
    for (const std::string& ticket : request->tickets()) {
      v1::TicketEvent event;
      event.set_ticket(ticket);
      writer->Write(event);
    }
    return request->tickets_size() == 2
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override {
    if (request->ticket() == "none") return {grpc::StatusCode::NOT_FOUND, "ticket"};
    response->set_cancelled(request->ticket() == "runs");
    return grpc::Status::OK;
  }

  std::vector<double> waits_;  // what was asked for, of one call after the other
};

class TicketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-client-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    const std::string endpoint = absl::StrCat("unix:", folder_, "/s");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    auto client = Client::Connect(
        endpoint, {.deadline = absl::Seconds(100), .transfer_deadline = absl::Seconds(1000)});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown();
    std::filesystem::remove_all(folder_);
  }
  double SecondsOf(const v1::WaitRequest& request, const CallOptions& call = {}) {
    const auto response = client_->Wait(request, call);
    EXPECT_TRUE(response.ok()) << response.status();
    return response->response().floor_us();
  }

  std::string folder_;
  FakeGemm service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(TicketsTest, FieldsPassBothWays) {
  v1::SubmitRequest submit;
  submit.set_idempotency_key("k");
  const auto submitted = client_->Submit(submit);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->ticket(), "t-k");
  EXPECT_TRUE(submitted->repeated());
  v1::WaitRequest wait;
  wait.set_forget(true);
  const auto waited = client_->Wait(wait);
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_TRUE(waited->done());
  EXPECT_EQ(waited->code(), 5) << "that of the outcome is not that of the call";
  EXPECT_EQ(*client_->Cancel("runs"), true);
  EXPECT_EQ(*client_->Cancel("done"), false);
  EXPECT_EQ(client_->Cancel("none").status().code(), absl::StatusCode::kNotFound);
}

// The call outlasts the wait it asks for, and never for ever.
TEST_F(TicketsTest, TheDeadlineLeavesRoomForTheWait) {
  v1::WaitRequest wait;
  EXPECT_NEAR(SecondsOf(wait), 100, 20);
  wait.set_timeout_seconds(300);
  EXPECT_NEAR(SecondsOf(wait), 400, 20);
  wait.set_timeout_seconds(1e300);
  EXPECT_NEAR(SecondsOf(wait), 1100, 20);
  wait.set_timeout_seconds(-300);  // the daemon's to refuse
  EXPECT_NEAR(SecondsOf(wait), 100, 20);
  wait.set_timeout_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_GT(SecondsOf(wait), 50);
  EXPECT_NEAR(SecondsOf(wait, {.deadline = absl::Seconds(50), .cancel = {}}), 50, 20);
}

TEST_F(TicketsTest, AWaitThatIsRepeatedWaitsForWhatIsLeft) {
  v1::WaitRequest wait;
  wait.set_ticket("broken");
  wait.set_timeout_seconds(200);
  EXPECT_TRUE(client_->Wait(wait).ok());
  ASSERT_EQ(service_.waits_.size(), 2u);
  EXPECT_EQ(service_.waits_[0], 200);
  EXPECT_LE(service_.waits_[1], 199.7);
  EXPECT_GE(service_.waits_[1], 100);
}

TEST_F(TicketsTest, AWatchTellsOfEachAndHowItEnded) {
  std::vector<std::string> told;
  const auto tell = [&](const v1::TicketEvent& event) { told.push_back(event.ticket()); };
  const std::string two[] = {"a", "b"};
  EXPECT_TRUE(client_->Watch(two, tell).ok());
  EXPECT_THAT(told, ::testing::ElementsAre("a", "b"));
  const std::string one[] = {"c"};
  EXPECT_EQ(client_->Watch(one, tell).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(told, ::testing::ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace tetrad
