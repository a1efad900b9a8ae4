// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Uploads, good and spoilt, and weights that change under running requests.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{"--threads", "1"});
  }
  static void TearDownTestSuite() { daemon_.reset(); }

  v1::ListWeightsResponse List() {
    grpc::ClientContext context;
    v1::ListWeightsResponse response;
    EXPECT_TRUE(stubs_.weights->List(&context, {}, &response).ok());
    return response;
  }
  int Versions(const std::string& name) {
    const v1::ListWeightsResponse list = List();
    return static_cast<int>(std::ranges::count(list.weights(), name, &v1::WeightsInfo::name));
  }
  grpc::Status Drop(const std::string& weights, int* dropped = nullptr) {
    grpc::ClientContext context;
    v1::DropRequest request;
    request.set_weights(weights);
    v1::DropResponse response;
    const grpc::Status status = stubs_.weights->Drop(&context, request, &response);
    if (dropped != nullptr) *dropped = response.dropped();
    return status;
  }

  static std::unique_ptr<Daemon> daemon_;
  const Stubs stubs_{*daemon_};
  const Operands operands_{kShapeT1, {.seed = 1}};
};
std::unique_ptr<Daemon> WeightsTest::daemon_;

TEST_F(WeightsTest, SpoiltUploadsAreRefusedAndLeaveNothing) {
  const UploadMessages good = UploadMessagesOf(operands_, "spoilt");
  const size_t last = good.size() - 1;  // a chunk of scales
  const struct {
    const char* name;
    std::function<void(UploadMessages&)> spoil;
    grpc::StatusCode code;
    std::vector<std::string> message;
  } kCases[] = {
      {"empty stream",
       [](UploadMessages& m) { m.clear(); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"header"}},
      {"no header",
       [](UploadMessages& m) { m.erase(m.begin()); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"chunk", "header"}},
      {"two headers",
       [](UploadMessages& m) { m.insert(m.begin(), m.front()); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"header"}},
      {"empty message",
       [](UploadMessages& m) { m.emplace_back(); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"header", "chunk"}},
      {"chunk twice",
       [last](UploadMessages& m) { m.push_back(m[last]); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"scales", "already written"}},
      {"one byte twice",
       [](UploadMessages& m) {
         v1::UploadChunk& chunk = *m.emplace_back().mutable_chunk();
         chunk.set_operand(v1::WEIGHTS_OPERAND_CODES);
         chunk.set_offset(5);
         chunk.set_data("x");
       },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"codes", "offset 5", "already written"}},
      {"one byte missing",
       [last](UploadMessages& m) { m[last].mutable_chunk()->mutable_data()->pop_back(); },
       grpc::StatusCode::FAILED_PRECONDITION,
       {"scales", "1 of"}},
      {"one byte beyond",
       [last](UploadMessages& m) { m[last].mutable_chunk()->mutable_data()->push_back('\0'); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"scales", "exceed"}},
      {"offset negative",
       [last](UploadMessages& m) { m[last].mutable_chunk()->set_offset(-1); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"scales", "offset -1"}},
      {"offset huge",
       [last](UploadMessages& m) { m[last].mutable_chunk()->set_offset(INT64_MAX); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"scales"}},
      {"operand missing",
       [last](UploadMessages& m) { m[last].mutable_chunk()->clear_operand(); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"chunk.operand"}},
      {"NaN scale",
       [last](UploadMessages& m) { m[last].mutable_chunk()->mutable_data()->at(7) = '\x7F'; },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"group 0", "row 0", "block 7"}},
      {"negative scale",
       [last](UploadMessages& m) { m[last].mutable_chunk()->mutable_data()->at(9) = '\x80'; },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"group 0", "row 0", "block 9"}},
      {"alpha short",
       [](UploadMessages& m) { m[0].mutable_header()->mutable_alpha()->RemoveLast(); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"alpha", "1", "2"}},
      {"k odd",
       [](UploadMessages& m) { m[0].mutable_header()->mutable_groups(1)->set_k(100); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"group 1", "k=100", "32"}},
      {"no groups",
       [](UploadMessages& m) { m[0].mutable_header()->clear_groups(); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"groups=0"}},
      {"group_count with a list",
       [](UploadMessages& m) { m[0].mutable_header()->set_group_count(2); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"header.group_count"}},
      {"group_count huge",
       [](UploadMessages& m) {
         m[0].mutable_header()->mutable_groups()->RemoveLast();
         m[0].mutable_header()->set_group_count(INT32_MAX);
       },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"header.group_count", "2147483647"}},
      {"name with a version",
       [](UploadMessages& m) { m[0].mutable_header()->set_name("a@1"); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"name"}},
      {"name too long",
       [](UploadMessages& m) { m[0].mutable_header()->set_name(std::string(100'000, 'n')); },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"name", "100000"}},
      {"more memory than there ever is",
       [](UploadMessages& m) {
         m[0].mutable_header()->mutable_groups(0)->set_n(1 << 26);
         m[0].mutable_header()->mutable_groups(0)->set_k(1 << 12);
       },
       grpc::StatusCode::INVALID_ARGUMENT,
       {"bytes=", "the device has"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.name);
    UploadMessages messages = good;
    test.spoil(messages);
    v1::UploadResponse response;
    const grpc::Status status = Upload(stubs_, messages, &response);
    EXPECT_EQ(status.error_code(), test.code) << status.error_message();
    for (const std::string& part : test.message) {
      EXPECT_THAT(status.error_message(), HasSubstr(part));
    }
    EXPECT_EQ(List().weights_size(), 0);
  }
  Register(stubs_, operands_, "spoilt");
  ExecuteAndVerify(stubs_, operands_, RequestOf(operands_, "spoilt"));
  EXPECT_TRUE(Drop("spoilt").ok());
}

TEST_F(WeightsTest, BrokenOffUploadLeavesNothing) {
  for (const bool after_everything : {false, true}) {
    const UploadMessages messages = UploadMessagesOf(operands_, "broken", 4096);
    v1::UploadResponse response;
    {
      const Stubs other(*daemon_);
      grpc::ClientContext context;
      const auto writer = other.weights->Upload(&context, &response);
      const size_t sent = after_everything ? messages.size() : messages.size() / 2;
      for (size_t i = 0; i < sent; ++i) ASSERT_TRUE(writer->Write(messages[i]));
      for (int i = 0; i < 200 && Versions("broken") == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_EQ(Versions("broken"), 1);
      context.TryCancel();
      EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
    for (int i = 0; i < 200 && Versions("broken") != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(Versions("broken"), 0);
  }
}

TEST_F(WeightsTest, SealedLater) {
  UploadMessages messages = UploadMessagesOf(operands_, "later");
  messages[0].mutable_header()->set_seal(false);
  v1::UploadResponse uploaded;
  ASSERT_TRUE(Upload(stubs_, messages, &uploaded).ok());
  EXPECT_FALSE(uploaded.weights().sealed());
  const v1::ExecuteRequest request = RequestOf(operands_, "later");
  {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    EXPECT_EQ(stubs_.gemm->Execute(&context, request, &response).error_code(),
              grpc::StatusCode::FAILED_PRECONDITION);
  }
  v1::SealRequest seal;
  seal.set_name("later");
  seal.set_version(uploaded.weights().version());
  v1::SealResponse sealed;
  grpc::ClientContext context, again;
  ASSERT_TRUE(stubs_.weights->Seal(&context, seal, &sealed).ok());
  EXPECT_TRUE(sealed.weights().sealed());
  EXPECT_FALSE(stubs_.weights->Seal(&again, seal, &sealed).ok());
  ExecuteAndVerify(stubs_, operands_, request);
  EXPECT_TRUE(Drop("later").ok());
}

TEST_F(WeightsTest, ListedAsUploaded) {
  const std::string weights = Register(stubs_, operands_, "listed");
  const v1::ListWeightsResponse list = List();
  ASSERT_EQ(list.weights_size(), 1);
  const v1::WeightsInfo& info = list.weights(0);
  EXPECT_EQ(info.name() + "@" + std::to_string(info.version()), weights);
  EXPECT_EQ(info.group_count(), 2);
  ASSERT_EQ(info.groups_size(), 2);
  EXPECT_EQ(info.groups(1).n(), 256);
  EXPECT_EQ(info.groups(1).k(), 512);
  EXPECT_EQ(info.source(), "upload");
  EXPECT_GT(info.bytes(), 256 * 512 / 2);
  EXPECT_TRUE(Drop("listed").ok());
}

TEST_F(WeightsTest, ReplacedAndDroppedWhileExecuting) {
  const v1::ExecuteRequest slow = RegisterSlow(stubs_, "busy");
  grpc::Status status;
  v1::ExecuteResponse response;
  std::jthread caller([&] {
    grpc::ClientContext context;
    status = stubs_.gemm->Execute(&context, slow, &response);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  RegisterSlow(stubs_, "busy");
  EXPECT_EQ(Versions("busy"), 1);
  int dropped = 0;
  EXPECT_TRUE(Drop("busy", &dropped).ok());
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(Versions("busy"), 0);
  caller.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  // Codes 0.5 and scales 1 and 0.5: every sum is k / 8.
  const auto* half = reinterpret_cast<const uint16_t*>(response.output().data());
  EXPECT_EQ(half[0], 0x6000);  // 512
  EXPECT_EQ(half[response.output().size() / 2 - 1], 0x6000);
  EXPECT_EQ(Drop("busy").error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  EXPECT_EQ(stubs_.gemm->Execute(&context, slow, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(WeightsTest, ReplacementTakesEffectAndNeedsTheShapes) {
  const Operands other(kShapeT1, {.seed = 2});
  const std::string first = Register(stubs_, operands_, "swap");
  ExecuteAndVerify(stubs_, operands_, RequestOf(operands_, "swap"));
  const std::string second = Register(stubs_, other, "swap");
  EXPECT_NE(first, second);
  ExecuteAndVerify(stubs_, other, RequestOf(other, "swap"));
  ExecuteAndVerify(stubs_, other, RequestOf(other, second));
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  EXPECT_EQ(stubs_.gemm->Execute(&context, RequestOf(other, first), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  const Operands larger(kShapeT2, {.seed = 3});
  v1::UploadResponse uploaded;
  EXPECT_EQ(Upload(stubs_, UploadMessagesOf(larger, "swap"), &uploaded).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Versions("swap"), 1);
  ExecuteAndVerify(stubs_, other, RequestOf(other, "swap"));
  EXPECT_TRUE(Drop("swap").ok());
}

}  // namespace
}  // namespace tetrad::e2e
