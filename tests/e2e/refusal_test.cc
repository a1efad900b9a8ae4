// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests that must be refused: each with the right code and the field, and
// without harm to the next good request.
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

class RefusalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--max-inline-bytes", "50000000", "--threads", "1"});
  }
  static void TearDownTestSuite() { daemon_.reset(); }

  static SampleOptions Options() {
    SampleOptions options;
    options.row_scales = true;
    options.seed = 3;
    return options;
  }
  grpc::Status Execute(const v1::ExecuteRequest& request) {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return stubs_.gemm->Execute(&context, request, &response);
  }
  static void ExpectPrintable(const std::string& text) {
    EXPECT_LT(text.size(), 2200u);
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << text;
  }

  static std::unique_ptr<Daemon> daemon_;
  const Stubs stubs_{*daemon_};
};
std::unique_ptr<Daemon> RefusalTest::daemon_;

TEST_F(RefusalTest, EveryWrongFieldIsNamedAndTheNextRequestWorks) {
  const GroupShape kShapes[] = {{5, 24, 96}, {3, 40, 64}};
  const Operands operands(kShapes, Options());
  Register(stubs_, operands, "good");
  const v1::ExecuteRequest good = RequestOf(operands, "good");
  const std::string codes = std::to_string(good.inline_operands().activations().size());
  const std::string scales = std::to_string(good.inline_operands().activation_scales().size());

  using Request = v1::ExecuteRequest;
  const auto operand = [](Request& request) { return request.mutable_inline_operands(); };
  const auto signature = [](Request& request) { return request.mutable_signature(); };
  const struct {
    const char* name;
    std::function<void(Request&)> spoil;
    std::vector<std::string> message;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  } kCases[] = {
      {"a short",
       [&](Request& r) { operand(r)->mutable_activations()->pop_back(); },
       {"activations", codes}},
      {"a long",
       [&](Request& r) { operand(r)->mutable_activations()->push_back('x'); },
       {"activations", codes}},
      {"scales short",
       [&](Request& r) { operand(r)->mutable_activation_scales()->pop_back(); },
       {"activation_scales", scales}},
      {"scales long",
       [&](Request& r) { operand(r)->mutable_activation_scales()->push_back('x'); },
       {"activation_scales", scales}},
      {"row scale short",
       [&](Request& r) { operand(r)->mutable_row_scale()->RemoveLast(); },
       {"row_scale", "7", "8"}},
      {"row scale long",
       [&](Request& r) { operand(r)->add_row_scale(1); },
       {"row_scale", "9", "8"}},
      {"row scale unasked", [&](Request& r) { signature(r)->set_row_scale(false); }, {"row_scale"}},
      {"alpha short", [&](Request& r) { operand(r)->add_alpha(1); }, {"alpha", "1", "2"}},
      {"alpha NaN",
       [&](Request& r) {
         operand(r)->add_alpha(1);
         operand(r)->add_alpha(std::numeric_limits<float>::quiet_NaN());
       },
       {"group 1", "alpha"}},
      {"m_values unasked", [&](Request& r) { operand(r)->add_m_values(1); }, {"m_values"}},
      {"no operands",
       [&](Request& r) { r.clear_inline_operands(); },
       {"operands", "inline_operands", "block_operands"}},
      {"empty operands", [&](Request& r) { operand(r)->Clear(); }, {"activations", "0", codes}},
      {"nothing", [&](Request& r) { r.Clear(); }, {"plan", "signature"}},
      {"m missing",
       [&](Request& r) { signature(r)->mutable_exact()->mutable_m()->RemoveLast(); },
       {"1", "2"}},
      {"m negative",
       [&](Request& r) { signature(r)->mutable_exact()->set_m(1, -1); },
       {"group 1", "m=-1"}},
      {"m huge", [&](Request& r) { signature(r)->mutable_exact()->set_m(0, INT32_MAX); }, {}},
      {"rows missing", [&](Request& r) { signature(r)->clear_exact(); }, {"signature.rows"}},
      {"stride negative",
       [&](Request& r) { signature(r)->set_output_stride(-1); },
       {"output_stride=-1"}},
      {"stride small",
       [&](Request& r) { signature(r)->set_output_stride(39); },
       {"group 1", "output_stride=39", "40"}},
      {"stacked with two shapes",
       [&](Request& r) { signature(r)->set_group_form(v1::GROUP_FORM_STACKED); },
       {"group 1"}},
      {"capacity needs stacked",
       [&](Request& r) {
         signature(r)->mutable_capacity()->set_m_source(v1::M_SOURCE_COUNTS);
         signature(r)->mutable_capacity()->set_rows(8);
       },
       {"group_form"}},
      {"m_source missing",
       [&](Request& r) { signature(r)->mutable_capacity()->set_rows(8); },
       {"signature.capacity.m_source", "must be set"}},
      {"activation type missing",
       [&](Request& r) { signature(r)->clear_activation_type(); },
       {"signature.activation_type", "must be set"}},
      {"activation type unknown",
       [&](Request& r) { signature(r)->set_activation_type(static_cast<v1::ActivationType>(9)); },
       {"signature.activation_type", "9"}},
      {"output type unknown",
       [&](Request& r) { signature(r)->set_output_type(static_cast<v1::OutputType>(-1)); },
       {"signature.output_type", "-1"}},
      {"scale layout unknown",
       [&](Request& r) {
         signature(r)->set_activation_scale_layout(static_cast<v1::ScaleLayout>(3));
       },
       {"signature.activation_scale_layout", "3"}},
      {"output layout unknown",
       [&](Request& r) { signature(r)->set_output_layout(static_cast<v1::OutputLayout>(3)); },
       {"signature.output_layout", "3"}},
      {"form unknown",
       [&](Request& r) { signature(r)->set_group_form(static_cast<v1::GroupForm>(3)); },
       {"signature.group_form", "3"}},
      {"epilogue unknown",
       [&](Request& r) { signature(r)->set_epilogue(static_cast<v1::Epilogue>(1)); },
       {"signature.epilogue", "1"}},
      {"weights missing",
       [&](Request& r) { signature(r)->clear_weights(); },
       {"signature.weights", "must be set"}},
      {"weights newline",
       [&](Request& r) { signature(r)->set_weights("a\nb"); },
       {"signature.weights", "a\\x0Ab", "byte 1"}},
      {"weights NUL",
       [&](Request& r) { signature(r)->set_weights(std::string("a\0b", 3)); },
       {"signature.weights", "a\\x00b"}},
      {"weights four-byte character",
       [&](Request& r) { signature(r)->set_weights("a\xF0\x9F\x98\x80"); },
       {"signature.weights", "a\\xF0\\x9F\\x98\\x80"}},
      {"weights long",
       [&](Request& r) { signature(r)->set_weights(std::string(100'000, 'w')); },
       {"signature.weights", "100000 bytes"}},
      {"weights unknown",
       [&](Request& r) { signature(r)->set_weights("nobody"); },
       {"nobody"},
       grpc::StatusCode::NOT_FOUND},
      {"weights of other version",
       [&](Request& r) { signature(r)->set_weights("good@999"); },
       {"good@999"},
       grpc::StatusCode::NOT_FOUND},
      {"handle unknown", [&](Request& r) { r.set_plan("nothing"); }, {"plan"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.name);
    Request request = good;
    test.spoil(request);
    const grpc::Status status = Execute(request);
    EXPECT_EQ(status.error_code(), test.code) << status.error_message();
    for (const std::string& part : test.message) {
      EXPECT_THAT(status.error_message(), HasSubstr(part));
    }
    ExpectPrintable(status.error_message());
    ExecuteAndVerify(stubs_, operands, good);
  }
}

TEST_F(RefusalTest, ThousandsOfInvalidGroupsArriveAsInvalidArgument) {
  UploadMessages messages(1);
  v1::UploadHeader& header = *messages[0].mutable_header();
  header.set_name("many");
  header.set_group_count(5000);
  header.add_groups()->set_n(1);
  header.mutable_groups(0)->set_k(32);
  header.set_seal(true);
  for (const auto& [operand, bytes] : {std::pair{v1::WEIGHTS_OPERAND_CODES, 5000 * 16},
                                       std::pair{v1::WEIGHTS_OPERAND_SCALES, 5000 * 2}}) {
    v1::UploadChunk& chunk = *messages.emplace_back().mutable_chunk();
    chunk.set_operand(operand);
    chunk.set_data(std::string(static_cast<size_t>(bytes), '\0'));
  }
  v1::UploadResponse response;
  ASSERT_TRUE(Upload(stubs_, messages, &response).ok());
  v1::PrepareRequest request;
  request.mutable_signature()->set_weights("many");
  request.mutable_signature()->set_activation_type(v1::ACTIVATION_TYPE_BF16);
  request.mutable_signature()->set_output_type(v1::OUTPUT_TYPE_FP32);
  for (int g = 0; g < 5000; ++g) request.mutable_signature()->mutable_exact()->add_m(-1);
  grpc::ClientContext context;
  v1::PrepareResponse prepared;
  const grpc::Status status = stubs_.gemm->Prepare(&context, request, &prepared);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("group 0: m=-1"));
  ExpectPrintable(status.error_message());
}

// The message library would note each in a line of its own.
TEST_F(RefusalTest, TextsThatAreNotUtf8AreRefusedAndLeaveNothingInTheLog) {
  v1::ReleaseRequest request;
  request.set_plan("\xFF");
  v1::ReleaseResponse response;
  grpc::ClientContext context;
  EXPECT_FALSE(stubs_.gemm->Release(&context, request, &response).ok());
  EXPECT_EQ(daemon_->Log().find("UTF-8"), std::string::npos) << daemon_->Log();
}

TEST_F(RefusalTest, ReleasedHandleIsAborted) {
  const Operands operands(kShapeT1, {.seed = 5});
  Register(stubs_, operands, "released");
  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = SignatureOf(operands, "released");
  v1::PrepareResponse prepared;
  grpc::ClientContext prepare_context;
  ASSERT_TRUE(stubs_.gemm->Prepare(&prepare_context, prepare, &prepared).ok());
  v1::ReleaseRequest release;
  release.set_plan(prepared.plan());
  v1::ReleaseResponse released;
  {
    // Another listener's callers are another client.
    const Stubs stranger(Connect(daemon_->tcp()));
    grpc::ClientContext context;
    EXPECT_EQ(stranger.gemm->Release(&context, release, &released).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  grpc::ClientContext first, second;
  EXPECT_TRUE(stubs_.gemm->Release(&first, release, &released).ok());
  EXPECT_EQ(stubs_.gemm->Release(&second, release, &released).error_code(),
            grpc::StatusCode::ABORTED);
  v1::ExecuteRequest request = RequestOf(operands, "released");
  request.set_plan(prepared.plan());
  EXPECT_EQ(Execute(request).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(RefusalTest, SizeBeyondTheLimitIsRefusedByUs) {
  const Operands operands(kShapeT1, {.seed = 6});
  Register(stubs_, operands, "limit");
  v1::ExecuteRequest request = RequestOf(operands, "limit");
  // The reply counts too: operands of 22 MB whose output is 38 MB.
  request.mutable_signature()->mutable_exact()->set_m(0, 150'000);
  request.mutable_inline_operands()->mutable_activations()->resize(150'000 * 128 + 128 * 256);
  request.mutable_inline_operands()->mutable_activation_scales()->resize(150'000 * 16 + 128 * 32);
  const grpc::Status status = Execute(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes is 50000000"));
  request.mutable_inline_operands()->mutable_activations()->resize(51'000'000);
  const grpc::Status larger = Execute(request);
  EXPECT_EQ(larger.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << larger.error_message();
}

TEST_F(RefusalTest, DeadlineAndCancellationEndACallAtOnce) {
  const Operands operands(kShapeT1, {.seed = 4});
  Register(stubs_, operands, "quick");
  const v1::ExecuteRequest quick = RequestOf(operands, "quick");
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(1));
    v1::ExecuteResponse response;
    EXPECT_EQ(stubs_.gemm->Execute(&context, quick, &response).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ExecuteAndVerify(stubs_, operands, quick);

  const v1::ExecuteRequest slow = RegisterSlow(stubs_, "slow");
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  grpc::Status status;
  std::jthread caller([&] { status = stubs_.gemm->Execute(&context, slow, &response); });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  const auto cancelled = std::chrono::steady_clock::now();
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_LT(std::chrono::steady_clock::now() - cancelled, std::chrono::seconds(1));
  // Neither left anything on the device that harms the next.
  ExecuteAndVerify(stubs_, operands, quick);
  v1::GetStatusResponse state;
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext status_context;
    ASSERT_TRUE(stubs_.status->GetStatus(&status_context, {}, &state).ok());
    if (state.in_flight() == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(state.in_flight(), 0);
}

}  // namespace
}  // namespace tetrad::e2e
