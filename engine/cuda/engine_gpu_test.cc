// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The whole engine on a real GPU: results of requests, memory under pressure,
// and what steady state must not do.
#include <future>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/cuda/cuda_device.h"
#include "engine/engine.h"
#include "engine/sample_request.h"

namespace tetrad::cuda {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class EngineGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = LoadCudaDriver();
    if (!driver.ok()) GTEST_SKIP() << driver.status().message();
    Start({}, 1 << 30);
  }

  void Start(const EngineOptions& options, int64_t memory_bytes) {
    engine_ = *Engine::Create(
        [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          auto device = CudaDevice::Create(
              *LoadCudaDriver(),
              {.memory_bytes = memory_bytes, .plan_bytes = 512 << 20, .measure_rates = false},
              std::move(wake));
          if (device.ok()) device_ = device->get();
          return device;
        },
        options);
    lease_ = engine_->Attach("c", "")->lease;
  }

  absl::StatusOr<std::vector<std::byte>> Execute(ExecuteRequest request) {
    std::promise<absl::StatusOr<std::vector<std::byte>>> promise;
    auto answer = promise.get_future();
    request.client = client_;
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      if (!executed.ok()) return promise.set_value(executed.status());
      std::vector<std::byte> output(static_cast<size_t>(executed->output_bytes()));
      const absl::Status copied = executed->CopyOutput(output);
      if (!copied.ok()) return promise.set_value(copied);
      promise.set_value(std::move(output));
    });
    return answer.get();
  }

  struct Blocks {
    std::string a, a_scales, c;
    BlockOperands operands;
  };
  Blocks Place(const InlineOperands& inline_operands, int64_t c_bytes) {
    Blocks blocks;
    const auto put = [&](std::string_view data, std::string& block) {
      block = engine_->Allocate("c", lease_, std::max<int64_t>(std::ssize(data), 1))->block;
      EXPECT_TRUE(engine_->Write("c", block, 0, Bytes(data)).ok());
    };
    put(inline_operands.activations, blocks.a);
    put(inline_operands.activation_scales, blocks.a_scales);
    blocks.c = engine_->Allocate("c", lease_, c_bytes)->block;
    blocks.operands.activations = {blocks.a, 0, std::ssize(inline_operands.activations)};
    blocks.operands.activation_scales = {blocks.a_scales, 0,
                                         std::ssize(inline_operands.activation_scales)};
    blocks.operands.output = {blocks.c, 0, c_bytes};
    return blocks;
  }

  const std::string client_ = "c";
  std::unique_ptr<Engine> engine_;
  CudaDevice* device_ = nullptr;
  std::string lease_;
};

TEST_F(EngineGpuTest, InlineRequestsOfEveryKindAreExact) {
  int number = 0;
  for (const ActivationType a :
       {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    for (const OutputType c : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
        SampleOptions options;
        options.types.a_type = a;
        options.types.c_type = c;
        options.form = form;
        options.row_scales = number % 2 == 0;
        options.seed = static_cast<uint64_t>(++number);
        SampleRequest sample({{70, 200, 416}, {0, 200, 416}, {3, 200, 416}, {129, 200, 416}},
                             options);
        const std::string name = absl::StrCat("w", number);
        ASSERT_TRUE(sample.Register(engine_->weights(), name).ok());
        const SignatureRequest signature = sample.Signature(name);
        ExecuteRequest request;
        request.signature = &signature;
        request.operands = sample.Inline();
        for (int times = 0; times < 3; ++times) {
          const auto output = Execute(request);
          ASSERT_TRUE(output.ok()) << output.status();
          EXPECT_TRUE(sample.Judge(*output).pass) << number;
        }
      }
    }
  }
}

// Eight plans whose operands rotate through sixteen sets of blocks each.
TEST_F(EngineGpuTest, SteadyStateCapturesAndInstantiatesNothing) {
  constexpr int kPlans = 8, kSets = 16;
  struct PlanOfTest {
    std::unique_ptr<SampleRequest> sample;
    SignatureRequest signature;
    std::vector<Blocks> sets;
    int64_t c_bytes = 0;
  };
  std::vector<PlanOfTest> plans;
  for (int p = 0; p < kPlans; ++p) {
    PlanOfTest plan;
    const int32_t m = 5 + 7 * p;
    plan.sample = std::make_unique<SampleRequest>(
        std::vector<GroupShape>{{m, 128, 256}},
        SampleOptions{.kind = DataKind::kContest, .seed = static_cast<uint64_t>(p + 1)});
    const std::string name = absl::StrCat("w", p);
    ASSERT_TRUE(plan.sample->Register(engine_->weights(), name).ok());
    plan.signature = plan.sample->Signature(name);
    plan.c_bytes = m * 128 * 2;
    for (int s = 0; s < kSets; ++s) {
      plan.sets.push_back(Place(plan.sample->Inline(), plan.c_bytes));
    }
    plans.push_back(std::move(plan));
  }
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      PlanOfTest& plan = plans[static_cast<size_t>(i) % kPlans];
      ExecuteRequest request;
      request.signature = &plan.signature;
      request.operands.alpha = plan.sample->Inline().alpha;
      request.blocks = &plan.sets[static_cast<size_t>(i / kPlans) % kSets].operands;
      ASSERT_TRUE(Execute(request).ok());
    }
  };
  run(kPlans * kSets);
  const ExecutionUse warm = device_->execution_use();
  run(1000);
  const ExecutionUse after = device_->execution_use();
  EXPECT_EQ(after.captures, warm.captures);
  EXPECT_EQ(after.graphs, warm.graphs);
  EXPECT_EQ(after.proofs, warm.proofs);
  EXPECT_EQ(after.graph_bytes, warm.graph_bytes);
  for (PlanOfTest& plan : plans) {
    for (const Blocks& set : plan.sets) {
      std::vector<std::byte> output(static_cast<size_t>(plan.c_bytes));
      ASSERT_TRUE(engine_->Read("c", set.c, 0, output).ok());
      EXPECT_TRUE(plan.sample->Judge(output).pass);
    }
  }
}

// More plans than staging has room for: idle sets give way, bindings come and
// go, and every result stays right.
TEST_F(EngineGpuTest, PlansThatTakeTurnsInLittleMemoryStayRight) {
  Start({.plan_capacity = 6, .staging_bytes = 1 << 20, .pool_chunk_bytes = 2 << 20}, 64 << 20);
  std::vector<std::unique_ptr<SampleRequest>> samples;
  for (int i = 0; i < 12; ++i) {
    samples.push_back(std::make_unique<SampleRequest>(
        std::vector<GroupShape>{{100 + i, 512, 512}, {i, 256, 128}},
        SampleOptions{.kind = DataKind::kContest, .seed = static_cast<uint64_t>(i + 1)}));
    ASSERT_TRUE(samples.back()->Register(engine_->weights(), absl::StrCat("w", i)).ok());
  }
  for (int turn = 0; turn < 60; ++turn) {
    const size_t index = static_cast<size_t>(turn * 7 % 12);
    const SignatureRequest signature = samples[index]->Signature(absl::StrCat("w", index));
    ExecuteRequest request;
    request.signature = &signature;
    request.operands = samples[index]->Inline();
    const auto output = Execute(request);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_TRUE(samples[index]->Judge(*output).pass) << turn;
  }
  EXPECT_LE(device_->execution_use().plans, 7);
}

}  // namespace
}  // namespace tetrad::cuda
