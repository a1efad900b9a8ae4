// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests with operands in blocks, and what their bindings and staging leave
// behind.
#include <optional>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"

namespace tetrad {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class BlockRequestsTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options = {}) {
    engine_ = *Engine::CreateStepped(
        [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create({.threads = 1, .memory_bytes = 8 << 20, .measure_rates = false},
                                   std::move(wake));
        },
        options, {.clock = &SteadyNow, .wake_step = [] {}, .wake_housekeep = [] {}});
    ASSERT_TRUE(sample_.Register(engine_->weights(), "w").ok());
    lease_ = engine_->Attach("c", "")->lease;
  }
  std::string Block(int64_t bytes) { return engine_->Allocate("c", lease_, bytes)->block; }

  absl::Status Execute(const ExecuteRequest& request) {
    std::optional<absl::Status> answer;
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      answer = executed.status();
      output_.clear();
      if (!executed.ok()) return;
      output_.resize(static_cast<size_t>(executed->output_bytes()));
      EXPECT_TRUE(executed->CopyOutput(output_).ok());
    });
    while (!answer.has_value()) engine_->Step();
    return *answer;
  }
  absl::Status ExecuteInline(std::span<const float> alpha) {
    ExecuteRequest request;
    request.client = "c";
    request.signature = &signature_;
    request.operands = inline_;
    request.operands.alpha = alpha;
    return Execute(request);
  }
  // The blocks get operands and output; room for more than is needed.
  absl::Status ExecuteInBlocks(const std::string& a, const std::string& scales,
                               const std::string& out) {
    EXPECT_TRUE(engine_->Write("c", a, 0, Bytes(inline_.activations)).ok());
    EXPECT_TRUE(engine_->Write("c", scales, 0, Bytes(inline_.activation_scales)).ok());
    BlockOperands blocks;
    blocks.activations = {a, 0, static_cast<int64_t>(inline_.activations.size())};
    blocks.activation_scales = {scales, 0, static_cast<int64_t>(inline_.activation_scales.size())};
    blocks.output = {out, 0, kOutputBytes};
    ExecuteRequest request;
    request.client = "c";
    request.signature = &signature_;
    request.operands.alpha = inline_.alpha;
    request.blocks = &blocks;
    absl::Status status = Execute(request);
    if (!status.ok()) return status;
    std::vector<std::byte> output(kOutputBytes);
    EXPECT_TRUE(engine_->Read("c", out, 0, output).ok());
    EXPECT_TRUE(sample_.Judge(output).pass);
    return status;
  }

  static constexpr int64_t kOutputBytes = 5 * 24 * 2;
  SampleRequest sample_{{{5, 24, 64}}, {.kind = DataKind::kContest, .seed = 3}};
  const SignatureRequest signature_ = sample_.Signature("w");
  const InlineOperands inline_ = sample_.Inline();
  std::unique_ptr<Engine> engine_;
  std::string lease_;
  std::vector<std::byte> output_;
};

// Staging that is full of idle sets for inline requests of the same plan.
TEST_F(BlockRequestsTest, IdleInlineSetsOfTheirOwnPlanGiveWay) {
  Start();
  const std::string a = Block(4096), scales = Block(4096), out = Block(4096);
  ASSERT_TRUE(ExecuteInline(inline_.alpha).ok());
  const int64_t one_set = engine_->Stats().staging_bytes;
  Start({.staging_bytes = one_set});
  const std::string b[] = {Block(4096), Block(4096), Block(4096)};
  ASSERT_TRUE(ExecuteInline(inline_.alpha).ok());
  EXPECT_TRUE(ExecuteInBlocks(b[0], b[1], b[2]).ok());
  EXPECT_TRUE(ExecuteInline(inline_.alpha).ok());
}

// An idle binding that still names a freed block must not keep its memory.
TEST_F(BlockRequestsTest, ChunksThatAnIdleBindingNamesGoBack) {
  Start({.pool_chunk_bytes = 64 << 10});
  const std::string a = Block(100 << 10), scales = Block(4096), out = Block(4096);
  const int64_t before = engine_->Stats().pool.reserved_bytes;
  const std::string large = Block(300 << 10);
  ASSERT_TRUE(ExecuteInBlocks(large, scales, out).ok());
  ASSERT_TRUE(engine_->Free("c", large).ok());
  engine_->Housekeep();
  EXPECT_EQ(engine_->Stats().pool.unreturned_bytes, 0);
  EXPECT_EQ(engine_->Stats().pool.reserved_bytes, before);
  EXPECT_TRUE(ExecuteInBlocks(a, scales, out).ok());
}

// A size of chunks that is no multiple of anything is the operator's choice.
TEST_F(BlockRequestsTest, ChunksMayBeOfAnySize) {
  for (const int64_t bytes : {1, 255, 65'537}) {
    Start({.pool_chunk_bytes = bytes});
    EXPECT_TRUE(ExecuteInBlocks(Block(4096), Block(4096), Block(4096)).ok()) << bytes;
  }
}

// alpha 0 and -0 differ in the sign of every zero of the result, whoever came
// before on the same staging set.
TEST_F(BlockRequestsTest, TheSignOfAlphaIsNotThatOfTheRequestBefore) {
  Start();
  const float zero[] = {0.0f}, minus_zero[] = {-0.0f};
  ASSERT_TRUE(ExecuteInline(zero).ok());
  const std::vector<std::byte> with_zero = output_;
  ASSERT_TRUE(ExecuteInline(minus_zero).ok());
  EXPECT_NE(output_, with_zero);
  ASSERT_TRUE(ExecuteInline(zero).ok());
  EXPECT_EQ(output_, with_zero);
}

TEST_F(BlockRequestsTest, WhatTheDeviceNeverHasIsRefusedAndNobodyGivesWay) {
  Start({.leases = {.client_block_bytes = 1 << 30}});
  ASSERT_TRUE(ExecuteInline(inline_.alpha).ok());
  const int64_t staging = engine_->Stats().staging_bytes;
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->Allocate("c", lease_, 9 << 20).status()));
  WeightsSpec huge;
  huge.name = "huge";
  huge.groups = {{1 << 20, 1 << 10}};
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->weights().Begin(huge).status()));
  EXPECT_EQ(engine_->Stats().staging_bytes, staging);
}

TEST_F(BlockRequestsTest, NamesAreLookedAtAlsoWhereNoBytesAreNeeded) {
  Start();
  SignatureRequest empty = signature_;
  empty.m = {0};
  BlockOperands blocks;
  blocks.activations = {"block-nonsense", 0, 0};
  ExecuteRequest request;
  request.client = "c";
  request.signature = &empty;
  request.blocks = &blocks;
  EXPECT_TRUE(absl::IsInvalidArgument(Execute(request)));
  blocks.activations = {};
  EXPECT_TRUE(Execute(request).ok());
}

// What the server asks before it lets a thread that answers others submit.
TEST_F(BlockRequestsTest, APlanMustBeBuiltAgainOnceItWasEvicted) {
  Start({.plan_capacity = 1});
  const std::string first = engine_->Prepare("c", signature_)->handle;
  EXPECT_FALSE(engine_->MustBuild("c", first));
  EXPECT_FALSE(engine_->MustBuild("somebody else", first)) << "it is refused at once";
  EXPECT_FALSE(engine_->MustBuild("c", "plan-nonsense"));
  SignatureRequest other = signature_;
  other.m = {7};
  ASSERT_TRUE(engine_->Prepare("c", other).ok());
  EXPECT_TRUE(engine_->MustBuild("c", first));
  ASSERT_TRUE(engine_->Prepare("c", signature_).ok());
  EXPECT_FALSE(engine_->MustBuild("c", first)) << "whoever asked for it";
}

}  // namespace
}  // namespace tetrad
