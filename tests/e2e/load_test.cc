// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints loaded from below the allowed root, and only from there.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFixtures = "tests/checkpoints/fixtures";
constexpr const char* kPattern = "model.layers.0.mlp.experts.{expert}.up_proj";

struct Loaded {
  grpc::Status status;
  std::vector<v1::LoadProgress> messages;
};

Loaded Load(const Stubs& stubs, const std::string& directory, const std::string& pattern,
            v1::CheckpointDialect dialect = v1::CHECKPOINT_DIALECT_UNSPECIFIED) {
  v1::LoadRequest request;
  request.set_name("loaded");
  request.set_directory(directory);
  request.set_pattern(pattern);
  request.set_dialect(dialect);
  grpc::ClientContext context;
  const auto reader = stubs.weights->Load(&context, request);
  Loaded loaded;
  for (v1::LoadProgress message; reader->Read(&message);) loaded.messages.push_back(message);
  loaded.status = reader->Finish();
  return loaded;
}

TEST(LoadTest, BothDialectsLoadAndAreReplacedByEachOther) {
  const Daemon daemon({"--checkpoint-root", kFixtures});
  const Stubs stubs(daemon);
  for (const char* directory : {"quickstart_modelopt", "quickstart_compressed_tensors"}) {
    const Loaded loaded = Load(stubs, directory, kPattern);
    ASSERT_TRUE(loaded.status.ok()) << loaded.status.error_message();
    ASSERT_FALSE(loaded.messages.empty());
    int64_t done = 0;
    for (const v1::LoadProgress& message : loaded.messages) {
      EXPECT_GE(message.bytes_done(), done);
      EXPECT_LE(message.bytes_done(), message.bytes_total());
      EXPECT_EQ(message.has_weights(), &message == &loaded.messages.back());
      done = message.bytes_done();
    }
    EXPECT_EQ(done, loaded.messages.back().bytes_total());
    const v1::WeightsInfo& info = loaded.messages.back().weights();
    EXPECT_TRUE(info.sealed());
    EXPECT_GT(info.group_count(), 1);
    EXPECT_EQ(info.source(), std::string("checkpoint:") + directory + ":" + kPattern);

    v1::ExecuteRequest request;
    v1::Signature& signature = *request.mutable_signature();
    signature.set_weights("loaded");
    signature.set_activation_type(v1::ACTIVATION_TYPE_BF16);
    signature.set_output_type(v1::OUTPUT_TYPE_FP32);
    for (int g = 0; g < info.group_count(); ++g) signature.mutable_exact()->add_m(1);
    const auto rows = static_cast<size_t>(info.group_count());
    request.mutable_inline_operands()->set_activations(
        std::string(rows * static_cast<size_t>(info.groups(0).k()) * 2, '\0'));
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.output().size(), rows * static_cast<size_t>(info.groups(0).n()) * 4);
  }
}

TEST(LoadTest, RefusalsNameTheirReasonAndLeaveNothing) {
  const TemporaryFolder folder;
  const std::string root = folder.path() + "/root";
  std::filesystem::copy(kFixtures, root, std::filesystem::copy_options::recursive);
  std::filesystem::copy(kFixtures, folder.path() + "/outside",
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directory_symlink("../outside/quickstart_modelopt", root + "/link");
  const Daemon daemon({"--checkpoint-root", root});
  const Stubs stubs(daemon);
  const struct {
    std::string directory, pattern;
    grpc::StatusCode code;
    v1::CheckpointDialect dialect = v1::CHECKPOINT_DIALECT_UNSPECIFIED;
  } kCases[] = {
      {"../outside/quickstart_modelopt", kPattern, grpc::StatusCode::INVALID_ARGUMENT},
      {"link", kPattern, grpc::StatusCode::PERMISSION_DENIED},
      {folder.path() + "/outside/quickstart_modelopt", kPattern,
       grpc::StatusCode::INVALID_ARGUMENT},
      {"missing", kPattern, grpc::StatusCode::NOT_FOUND},
      {"quickstart_modelopt", "nothing.{expert}.here", grpc::StatusCode::NOT_FOUND},
      {"quickstart_modelopt", kPattern, grpc::StatusCode::INVALID_ARGUMENT,
       v1::CHECKPOINT_DIALECT_COMPRESSED_TENSORS},
      {"quickstart_modelopt", kPattern, grpc::StatusCode::INVALID_ARGUMENT,
       static_cast<v1::CheckpointDialect>(7)},
      {"a\nb\xF0\x9F\x98\x80", kPattern, grpc::StatusCode::NOT_FOUND},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.directory + " " + test.pattern);
    const Loaded loaded = Load(stubs, test.directory, test.pattern, test.dialect);
    EXPECT_EQ(loaded.status.error_code(), test.code) << loaded.status.error_message();
    for (const char c : loaded.status.error_message()) EXPECT_TRUE(c >= ' ' && c <= '~');
    grpc::ClientContext context;
    v1::ListWeightsResponse list;
    EXPECT_TRUE(stubs.weights->List(&context, {}, &list).ok());
    EXPECT_EQ(list.weights_size(), 0);
  }
  EXPECT_TRUE(Load(stubs, "quickstart_modelopt", kPattern).status.ok());
}

TEST(LoadTest, WithoutARootNothingLoads) {
  const Daemon daemon;
  const Loaded loaded = Load(Stubs(daemon), "quickstart_modelopt", kPattern);
  EXPECT_EQ(loaded.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(loaded.status.error_message(), HasSubstr("--checkpoint-root"));
}

}  // namespace
}  // namespace tetrad::e2e
