// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The id of a call: taken from the client or given by the daemon, told to a
// client that sent one or whose call failed, and in every log line about it.
#include <map>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::MatchesRegex;
using ::testing::Not;

constexpr char kKey[] = "x-request-id";

// The id that came with the status; nothing if none or more than one did.
std::optional<std::string> IdOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  if (metadata.count(kKey) != 1) return std::nullopt;
  const grpc::string_ref id = metadata.find(kKey)->second;
  return std::string(id.data(), id.size());
}

// The id of a GetStatus that offers `offered`.
std::optional<std::string> Answer(const Stubs& stubs, const std::vector<std::string>& offered) {
  grpc::ClientContext context;
  for (const std::string& id : offered) context.AddMetadata(kKey, id);
  v1::GetStatusResponse response;
  EXPECT_TRUE(stubs.status->GetStatus(&context, {}, &response).ok());
  return IdOf(context);
}

using Fields = std::map<std::string, std::string>;

// Of a logfmt line; values with blanks in them are cut, none here has any.
Fields FieldsOf(const std::string& line) {
  Fields fields;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(line, ' '))) {
    const size_t equals = part.find('=');
    if (equals != std::string::npos) fields[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return fields;
}

// Of the line that has `start` and is about `request`. Waits for it, because a
// call is logged when its client may already have the answer.
Fields Line(const Daemon& daemon, const std::string& start, const std::string& request) {
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  do {
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(daemon.Log(), '\n'))) {
      if (line.find(start) == std::string::npos) continue;
      if (Fields fields = FieldsOf(line); fields["request"] == request) return fields;
    }
    absl::SleepFor(absl::Milliseconds(10));
  } while (absl::Now() < limit);
  ADD_FAILURE() << "no line with " << start << " about " << request << " in\n" << daemon.Log();
  return {};
}

TEST(RequestIdTest, AnIdOfTheClientComesBackAndOthersAreReplaced) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  EXPECT_EQ(Answer(stubs, {"trace/7:a+b=c_d-e.f"}), "trace/7:a+b=c_d-e.f");
  EXPECT_EQ(Answer(stubs, {std::string(128, 'x')}), std::string(128, 'x'));
  std::set<std::string> replacements;
  for (const std::string& bad : {std::string(129, 'x'), std::string("two words"), std::string()}) {
    const auto replaced = Answer(stubs, {bad});
    ASSERT_TRUE(replaced.has_value()) << bad;
    EXPECT_THAT(*replaced, MatchesRegex("[0-9a-f]+-[0-9a-f]+"));
    EXPECT_TRUE(replacements.insert(*replaced).second) << *replaced;
  }
}

TEST(RequestIdTest, ASuccessfulReplyHasNoTrailerUnlessTheClientSentAnId) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  for (const bool sent : {false, true}) {
    grpc::ClientContext context;
    if (sent) context.AddMetadata(kKey, "mine");
    v1::ExecuteResponse response;
    ASSERT_TRUE(stubs.gemm->Execute(&context, RequestOf(operands, "w"), &response).ok());
    EXPECT_EQ(context.GetServerTrailingMetadata().size(), sent ? 1u : 0u);
    EXPECT_EQ(IdOf(context), sent ? std::optional<std::string>("mine") : std::nullopt);
  }
  EXPECT_EQ(Answer(stubs, {}), std::nullopt);
}

TEST(RequestIdTest, AFailedCallWithoutAnIdBringsTheOneInTheLog) {
  const Daemon daemon({"--log-level", "debug"});
  const Stubs stubs(daemon);
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    EXPECT_FALSE(stubs.gemm->Execute(&context, {}, &response).ok());
    const auto id = IdOf(context);
    ASSERT_TRUE(id.has_value());
    EXPECT_THAT(*id, MatchesRegex("[0-9a-f]+-[0-9a-f]+"));
    EXPECT_TRUE(ids.insert(*id).second) << *id;
    EXPECT_EQ(Line(daemon, "event=\"call finished\"", *id)["code"], "INVALID_ARGUMENT");
  }
}

TEST(RequestIdTest, AStreamInWhichAnAnswerFailsBringsItsId) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  for (const bool fails : {false, true}) {
    grpc::ClientContext context;
    const auto stream = stubs.gemm->ExecuteStream(&context);
    v1::ExecuteStreamRequest request;
    if (fails) {
      request.mutable_execute();
    } else {
      request.mutable_cancel();
    }
    ASSERT_TRUE(stream->Write(request));
    stream->WritesDone();
    v1::ExecuteStreamResponse answer;
    EXPECT_EQ(stream->Read(&answer), fails);
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(IdOf(context).has_value(), fails);
  }
}

TEST(RequestIdTest, FailedCallsOfEveryKindBringTheirIds) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  {
    grpc::ClientContext context;
    context.AddMetadata(kKey, "unary");
    v1::ExecuteResponse response;
    EXPECT_FALSE(stubs.gemm->Execute(&context, {}, &response).ok());
    EXPECT_EQ(IdOf(context), "unary");
  }
  {
    grpc::ClientContext context;
    context.AddMetadata(kKey, "reads");
    v1::UploadResponse response;
    const auto writer = stubs.weights->Upload(&context, &response);
    writer->Write({});
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(IdOf(context), "reads");
  }
  {
    grpc::ClientContext context;
    context.AddMetadata(kKey, "writes");
    v1::LoadRequest request;
    request.set_name("w");
    const auto reader = stubs.weights->Load(&context, request);
    v1::LoadProgress progress;
    EXPECT_FALSE(reader->Read(&progress));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(IdOf(context), "writes");
  }
}

TEST(RequestIdTest, LogLinesNameTheCallTheyAreAbout) {
  const Daemon daemon({"--log-level", "debug"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  const UploadMessages messages = UploadMessagesOf(operands, "w");
  grpc::ClientContext uploading;
  uploading.AddMetadata(kKey, "up");
  v1::UploadResponse uploaded;
  const auto writer = stubs.weights->Upload(&uploading, &uploaded);
  int64_t sent_bytes = 0;
  for (const v1::UploadRequest& message : messages) {
    ASSERT_TRUE(writer->Write(message));
    sent_bytes += static_cast<int64_t>(message.ByteSizeLong());
  }
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  Fields line = Line(daemon, "event=\"weights uploaded\"", "up");
  EXPECT_EQ(line["client"], "anonymous@unix");
  EXPECT_EQ(line["version"], absl::StrCat(uploaded.weights().version()));
  EXPECT_EQ(line["bytes"], absl::StrCat(uploaded.weights().bytes()));
  EXPECT_EQ(line["sealed"], "true");

  Fields finished = Line(daemon, "level=debug event=\"call finished\"", "up");
  EXPECT_EQ(finished["method"], "tetrad.v1.Weights/Upload");
  EXPECT_EQ(finished["client"], "anonymous@unix");
  EXPECT_EQ(finished["code"], "OK");
  EXPECT_EQ(finished["bytes_in"], absl::StrCat(sent_bytes));
  EXPECT_EQ(finished["bytes_out"], absl::StrCat(uploaded.ByteSizeLong()));
  double milliseconds = 0;
  EXPECT_TRUE(absl::SimpleAtod(finished["milliseconds"], &milliseconds));
  EXPECT_GT(milliseconds, 0);

  grpc::ClientContext dropping;
  dropping.AddMetadata(kKey, "drop");
  v1::DropRequest drop;
  drop.set_weights("w");
  v1::DropResponse dropped;
  ASSERT_TRUE(stubs.weights->Drop(&dropping, drop, &dropped).ok());
  EXPECT_EQ(Line(daemon, "event=\"weights dropped\"", "drop")["versions"], "1");

  grpc::ClientContext failing;
  failing.AddMetadata(kKey, "fail");
  EXPECT_FALSE(stubs.weights->Drop(&failing, drop, &dropped).ok());
  EXPECT_EQ(Line(daemon, "level=debug event=\"call finished\"", "fail")["code"], "NOT_FOUND");
}

TEST(RequestIdTest, CallsAreLoggedAtLevelDebugOnly) {
  Daemon daemon({"--lame-duck-seconds", "0"});
  EXPECT_TRUE(Answer(Stubs(daemon), {"quiet"}).has_value());
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);  // whatever is logged, is by now
  EXPECT_THAT(daemon.Log(), Not(::testing::HasSubstr("quiet")));
}

}  // namespace
}  // namespace tetrad::e2e
