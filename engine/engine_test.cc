// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

struct Answer {
  absl::Status status;
  std::vector<std::byte> output;
  std::string weights;
};

class EngineTest : public ::testing::Test {
 protected:
  void Start(EngineOptions options = {}, int64_t memory_bytes = 256 << 20) {
    engine_ = *Engine::Create(
        [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create(
              {.threads = 2, .memory_bytes = memory_bytes, .measure_rates = false},
              std::move(wake));
        },
        options);
  }

  Answer Run(const ExecuteRequest& request) {
    std::promise<Answer> promise;
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      Answer answer;
      answer.status = executed.status();
      if (executed.ok()) {
        // Its staging goes back before the test goes on and counts it.
        const Executed done = *std::move(executed);
        answer.output.resize(static_cast<size_t>(done.output_bytes()));
        answer.status = done.CopyOutput(answer.output);
        answer.weights = done.weights();
      }
      promise.set_value(std::move(answer));
    });
    return promise.get_future().get();
  }
  Answer Run(const SignatureRequest& signature, const InlineOperands& operands) {
    ExecuteRequest request;
    request.client = "test";
    request.signature = &signature;
    request.operands = operands;
    return Run(request);
  }
  // Everything a test made is dropped; nothing may be left but idle staging, to
  // the byte. Memory comes back from another thread, so it is waited for.
  void ExpectBalanced() {
    for (const WeightsInfo& info : engine_->weights().List()) {
      (void)engine_->weights().Drop(info.spec.name);
    }
    WaitFor([&] {
      engine_->Housekeep();
      const EngineStats now = engine_->Stats();
      return now.reclaimable == 0 && now.pool.whole_bytes == 0 && now.block_bytes == 0;
    });
    const EngineStats stats = engine_->Stats();
    EXPECT_EQ(stats.weights_bytes, 0);
    EXPECT_EQ(stats.in_flight, 0);
    EXPECT_EQ(stats.plan_handles, 0);
    EXPECT_EQ(stats.blocks, 0);
    EXPECT_EQ(stats.block_bytes, 0);
    EXPECT_EQ(stats.pool.whole_bytes, 0);
    EXPECT_EQ(stats.pool.asked_bytes, stats.staging_bytes);
    EXPECT_EQ(stats.memory.allocated_bytes, stats.pool.reserved_bytes);
  }
  template <typename Condition>
  static void WaitFor(Condition condition) {
    const Instant limit = SteadyNow() + 20'000'000'000;
    while (!condition() && SteadyNow() < limit) std::this_thread::yield();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, EveryTypeLayoutAndFormIsBitEqual) {
  Start();
  int combination = 0;
  for (const ActivationType a :
       {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    for (const OutputType c : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const OutputLayout layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
        for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
          SampleOptions options;
          options.types = {a,
                           c,
                           (combination & 1) ? ScaleLayout::kBlocked : ScaleLayout::kLinear,
                           (combination & 2) ? ScaleLayout::kBlocked : ScaleLayout::kLinear,
                           layout,
                           Epilogue::kNone};
          if (a != ActivationType::kNvfp4) options.types.a_scale_layout = ScaleLayout::kLinear;
          options.form = form;
          options.row_scales = combination % 3 == 0;
          options.seed = static_cast<uint64_t>(combination) + 1;
          ++combination;
          SCOPED_TRACE(combination);
          std::vector<GroupShape> shapes = {{5, 33, 96}, {0, 33, 96}, {131, 33, 96}};
          if (form == GroupForm::kSeparate) shapes[2] = {67, 130, 32};
          SampleRequest sample(shapes, options);
          ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
          const Answer answer = Run(sample.Signature("w"), sample.Inline());
          ASSERT_TRUE(answer.status.ok()) << answer.status;
          const Verdict verdict = sample.Judge(answer.output);
          EXPECT_TRUE(verdict.pass) << verdict.ToString();
          ASSERT_TRUE(engine_->weights().Drop("w").ok());
        }
      }
    }
  }
  ExpectBalanced();
}

TEST_F(EngineTest, StridesLeaveGapsZeroEvenAfterOtherRequests) {
  Start();
  for (const OutputLayout layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
    SampleOptions options;
    options.types.c_layout = layout;
    options.form = GroupForm::kStacked;
    options.c_padding = 5;
    SampleRequest sample({{7, 40, 64}, {9, 40, 64}}, options);
    ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Answer answer = Run(sample.Signature("w"), sample.Inline());
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      EXPECT_TRUE(sample.Judge(answer.output).pass);
      const size_t stride = layout == OutputLayout::kRowMajor ? 45 : 21;
      const size_t dense = stride - 5;
      for (size_t i = 0; i < answer.output.size() / 2; ++i) {
        if (i % stride >= dense) {
          ASSERT_EQ(answer.output[2 * i], std::byte{0});
          ASSERT_EQ(answer.output[2 * i + 1], std::byte{0});
        }
      }
    }
    ASSERT_TRUE(engine_->weights().Drop("w").ok());
  }
}

// The same rows through exact M, offsets and counts: the same bits; rows that
// are not live are zero, also after a request that filled them.
TEST_F(EngineTest, DeviceSideMGivesTheBitsOfExactM) {
  Start();
  constexpr int kN = 48, kK = 96, kReserve = 40;
  SampleOptions options;
  options.kind = DataKind::kGeneral;
  options.form = GroupForm::kStacked;
  const std::vector<GroupShape> shapes(4, GroupShape{kReserve, kN, kK});
  SampleRequest full(shapes, options);
  ASSERT_TRUE(full.Register(engine_->weights(), "w").ok());
  const InlineOperands all = full.Inline();
  const auto row_bytes = [](int64_t rows) { return static_cast<size_t>(rows * kK / 2); };
  const auto scale_bytes = [](int64_t rows) { return static_cast<size_t>(rows * kK / 16); };
  for (const std::vector<int32_t>& m : {std::vector<int32_t>{40, 40, 40, 40},
                                        {0, 5, 0, 3},
                                        {7, 0, 1, 0},
                                        {0, 0, 0, 0},
                                        {40, 1, 0, 39}}) {
    SignatureRequest exact = full.Signature("w");
    exact.m = m;
    std::string a, a_scales;
    std::vector<int32_t> offsets = {0};
    for (size_t g = 0; g < m.size(); ++g) {
      a += all.activations.substr(row_bytes(kReserve) * g, row_bytes(m[g]));
      a_scales += all.activation_scales.substr(scale_bytes(kReserve) * g, scale_bytes(m[g]));
      offsets.push_back(offsets.back() + m[g]);
    }
    const Answer expected = Run(exact, {a, a_scales, all.alpha, {}, {}});
    ASSERT_TRUE(expected.status.ok()) << expected.status;

    SignatureRequest counts = full.Signature("w");
    counts.m.clear();
    counts.m_source = MSource::kCounts;
    counts.capacity_rows = kReserve;
    const Answer by_counts =
        Run(counts, {all.activations, all.activation_scales, all.alpha, {}, m});
    ASSERT_TRUE(by_counts.status.ok()) << by_counts.status;
    SignatureRequest stacked = counts;
    stacked.m_source = MSource::kOffsets;
    stacked.capacity_rows = 4 * kReserve;
    a.resize(row_bytes(4 * kReserve), '\x7F');
    a_scales.resize(scale_bytes(4 * kReserve), '\x7F');
    const Answer by_offsets = Run(stacked, {a, a_scales, all.alpha, {}, offsets});
    ASSERT_TRUE(by_offsets.status.ok()) << by_offsets.status;

    const size_t line = kN * 2;
    for (size_t g = 0; g < m.size(); ++g) {
      for (size_t row = 0; row < kReserve; ++row) {
        const std::byte* got = by_counts.output.data() + (g * kReserve + row) * line;
        if (row < static_cast<size_t>(m[g])) {
          const std::byte* want = expected.output.data() + (offsets[g] + row) * line;
          ASSERT_EQ(std::memcmp(got, want, line), 0) << "group " << g << " row " << row;
        } else {
          ASSERT_TRUE(std::all_of(got, got + line, [](std::byte b) { return b == std::byte{0}; }));
        }
      }
    }
    std::vector<std::byte> padded = expected.output;
    padded.resize(by_offsets.output.size());
    EXPECT_EQ(by_offsets.output, padded);
  }
}

TEST_F(EngineTest, EveryWrongOperandIsNamedAndHarmsNothing) {
  Start({.max_inline_bytes = 100000});
  SampleOptions options;
  options.row_scales = true;
  SampleRequest sample({{5, 24, 64}, {3, 24, 64}}, options);
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  const InlineOperands good = sample.Inline();
  const std::string long_a = std::string(good.activations) + "x";
  const std::string fp16(8 * 64 * 2, '\0');
  const std::vector<float> nan = {1.0f, NAN}, one = {1.0f};
  const std::vector<int32_t> values = {1};
  const struct {
    const char* text;
    std::function<void(SignatureRequest&, InlineOperands&)> change;
  } cases[] = {
      {"activations: 255 bytes, the signature needs 256",
       [](auto&, auto& o) { o.activations.remove_suffix(1); }},
      {"activations: 257 bytes", [&](auto&, auto& o) { o.activations = long_a; }},
      {"activation_scales: 31 bytes, the signature needs 32",
       [](auto&, auto& o) { o.activation_scales.remove_suffix(1); }},
      {"activation_scales: 32 bytes, the signature needs 0",
       [&](auto& s, auto& o) { s.types.a_type = ActivationType::kFp16, o.activations = fp16; }},
      {"row_scale: 7 values, the signature needs 8",
       [](auto&, auto& o) { o.row_scale = o.row_scale.first(7); }},
      {"row_scale: 8 values, the signature needs 0", [](auto& s, auto&) { s.row_scale = false; }},
      {"alpha: 1 values, the signature needs 2", [&](auto&, auto& o) { o.alpha = one; }},
      {"group 1: alpha=nan: wanted a finite number", [&](auto&, auto& o) { o.alpha = nan; }},
      {"m_values: 1 values, the signature needs 0", [&](auto&, auto& o) { o.m_values = values; }},
      {"m: 1 values, must be 2", [](auto& s, auto&) { s.m.pop_back(); }},
      {"group 0: m=-1", [](auto& s, auto&) { s.m[0] = -1; }},
      {"max_inline_bytes is 100000", [](auto& s, auto&) { s.m[0] = 100000; }},
      {"must be 1 to 128 characters", [](auto& s, auto&) { s.weights = "no such name"; }},
  };
  for (const auto& [text, change] : cases) {
    SignatureRequest signature = sample.Signature("w");
    InlineOperands operands = good;
    change(signature, operands);
    const Answer answer = Run(signature, operands);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(text));
    const Answer next = Run(sample.Signature("w"), good);
    ASSERT_TRUE(next.status.ok()) << next.status;
    ASSERT_TRUE(sample.Judge(next.output).pass);
  }
  SignatureRequest unknown = sample.Signature("unknown");
  EXPECT_TRUE(absl::IsNotFound(Run(unknown, good).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Run(ExecuteRequest{}).status));
  ExpectBalanced();
}

TEST_F(EngineTest, BadCountsAreInvalidArgument) {
  Start();
  SampleOptions options;
  options.form = GroupForm::kStacked;
  SampleRequest sample({{4, 24, 64}, {4, 24, 64}}, options);
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  SignatureRequest signature = sample.Signature("w");
  signature.m.clear();
  const InlineOperands good = sample.Inline();
  const struct {
    MSource source;
    int64_t capacity;
    std::vector<int32_t> values;
    const char* text;
  } cases[] = {
      {MSource::kCounts, 4, {5, 0}, "group 0: m_values=5: wanted 0 to the 4 rows reserved"},
      {MSource::kCounts, 4, {0, -1}, "group 1: m_values=-1"},
      {MSource::kOffsets, 8, {1, 2, 3}, "offsets[0]=1 must be 0"},
      {MSource::kOffsets, 8, {0, 3, 2}, "group 1: m_values=2: wanted 3 to the capacity of 8 rows"},
      {MSource::kOffsets, 8, {0, 3, 9}, "group 1: m_values=9: wanted 3 to the capacity"},
      {MSource::kOffsets, 8, {0, 3}, "m_values: 2 values, the signature needs 3"},
  };
  for (const auto& c : cases) {
    signature.m_source = c.source;
    signature.capacity_rows = c.capacity;
    InlineOperands operands = good;
    operands.m_values = c.values;
    const Answer answer = Run(signature, operands);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(c.text));
  }
}

TEST_F(EngineTest, PlansAreCachedRebuiltAfterEvictionAndHandlesEndTyped) {
  Start({.plan_capacity = 2});
  SampleRequest sample({{5, 24, 64}}, {});
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  SignatureRequest signature = sample.Signature("w");
  const auto first = engine_->Prepare("alice", signature);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->cached);
  EXPECT_TRUE(engine_->Prepare("bob", signature)->cached);
  for (int m = 6; m < 12; ++m) {  // evicts the first
    signature.m = {m};
    ASSERT_TRUE(engine_->Prepare("bob", signature).ok());
  }
  EXPECT_GE(engine_->Stats().plan_evictions, 5);
  ExecuteRequest request;
  request.client = "alice";
  request.plan = first->handle;
  request.operands = sample.Inline();
  const Answer answer = Run(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(sample.Judge(answer.output).pass);
  request.client = "mallory";
  EXPECT_TRUE(absl::IsPermissionDenied(Run(request).status));
  EXPECT_TRUE(absl::IsPermissionDenied(engine_->Release("mallory", first->handle)));
  EXPECT_TRUE(engine_->Release("alice", first->handle).ok());
  request.client = "alice";
  EXPECT_TRUE(absl::IsAborted(Run(request).status));
}

TEST_F(EngineTest, DropFreesMemoryAndAPlanHandleFindsTheNextVersion) {
  Start();
  SampleRequest one({{5, 24, 64}}, {.seed = 1}), two({{5, 24, 64}}, {.seed = 2});
  ASSERT_TRUE(one.Register(engine_->weights(), "w").ok());
  const auto plan = engine_->Prepare("c", one.Signature("w"));
  ExecuteRequest request;
  request.client = "c";
  request.plan = plan->handle;
  request.operands = one.Inline();
  ASSERT_TRUE(Run(request).status.ok());
  ASSERT_TRUE(two.Register(engine_->weights(), "w").ok());
  // The cached binding lets go of the replaced version without being used again.
  WaitFor([&] { return engine_->Stats().pool.wholes == 1; });
  EXPECT_EQ(engine_->Stats().pool.wholes, 1);
  request.operands = two.Inline();
  const Answer answer = Run(request);
  EXPECT_TRUE(two.Judge(answer.output).pass);
  EXPECT_NE(answer.weights, plan->weights);
  ASSERT_TRUE(engine_->weights().Drop("w").ok());
  EXPECT_TRUE(absl::IsNotFound(Run(request).status));
  SampleRequest other({{5, 24, 96}}, {});
  ASSERT_TRUE(other.Register(engine_->weights(), "w").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(request).status));
  EXPECT_TRUE(engine_->Release("c", plan->handle).ok());
  ExpectBalanced();
}

TEST_F(EngineTest, StagingGivesWayToOtherPlansAndIsBounded) {
  SampleRequest big({{64, 256, 64}}, {});
  Start({.staging_bytes = 50000});
  ASSERT_TRUE(big.Register(engine_->weights(), "w").ok());
  SignatureRequest signature = big.Signature("w");
  for (int round = 0; round < 3; ++round) {
    for (const OutputLayout layout : {OutputLayout::kRowMajor, OutputLayout::kColumnMajor}) {
      signature.types.c_layout = layout;
      const Answer answer = Run(signature, big.Inline());
      ASSERT_TRUE(answer.status.ok()) << answer.status;
    }
    EXPECT_LE(engine_->Stats().staging_bytes, 50000);
  }
  // What is in use stays.
  ExecuteRequest request;
  request.signature = &signature;
  request.operands = big.Inline();
  std::promise<absl::StatusOr<Executed>> promise;
  engine_->Execute(
      request, [&](absl::StatusOr<Executed> executed) { promise.set_value(std::move(executed)); });
  {
    const absl::StatusOr<Executed> held = promise.get_future().get();
    ASSERT_TRUE(held.ok()) << held.status();
    const Answer refused = Run(signature, big.Inline());
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status)) << refused.status;
    EXPECT_THAT(std::string(refused.status.message()), HasSubstr("staging_bytes:"));
  }
  // What can never fit is told so, and empties nobody's staging.
  ASSERT_TRUE(Run(signature, big.Inline()).status.ok());
  const int64_t staged = engine_->Stats().staging_bytes;
  signature.types.c_type = OutputType::kFp32;
  const Answer impossible = Run(signature, big.Inline());
  EXPECT_TRUE(absl::IsInvalidArgument(impossible.status)) << impossible.status;
  EXPECT_EQ(engine_->Stats().staging_bytes, staged);
  EXPECT_GT(staged, 0);
  ExpectBalanced();
}

TEST_F(EngineTest, PastDeadlinesAndCancelledRequestsEndTyped) {
  Start();
  SampleRequest sample({{512, 512, 2048}}, {.kind = DataKind::kContest});
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  const SignatureRequest signature = sample.Signature("w");
  ExecuteRequest request;
  request.signature = &signature;
  request.operands = sample.Inline();
  request.deadline = SteadyNow() - 1;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Run(request).status));
  request.deadline = kNever;

  constexpr int kRequests = 24;
  std::atomic<int> ok{0}, cancelled{0}, other{0};
  std::vector<ExecutionId> ids;
  std::vector<std::promise<void>> ends(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    ids.push_back(engine_->Execute(request, [&, i](absl::StatusOr<Executed> executed) {
      ++(executed.ok() ? ok : absl::IsCancelled(executed.status()) ? cancelled : other);
      ends[i].set_value();
    }));
  }
  for (int i = 1; i < kRequests; ++i) engine_->Cancel(ids[i]);
  for (auto& end : ends) end.get_future().wait();
  EXPECT_GE(ok, 1);
  EXPECT_EQ(ok + cancelled, kRequests);
  EXPECT_GE(cancelled, 1);
  for (const ExecutionId id : ids) engine_->Cancel(id);  // long over: no effect
  ExpectBalanced();
}

// Clients run while a version is replaced again and again: every answer is
// wholly of the version it names.
TEST_F(EngineTest, ReplacementUnderLoadNeverMixesVersions) {
  Start({.plan_capacity = 2});
  const std::vector<GroupShape> shapes = {{9, 40, 64}, {17, 40, 64}};
  SampleRequest versions[2] = {{shapes, {.kind = DataKind::kContest, .seed = 1}},
                               {shapes, {.kind = DataKind::kContest, .seed = 2}}};
  // One set of activations, two sets of weights: two possible outputs.
  const SignatureRequest signature = versions[0].Signature("w");
  std::vector<std::byte> outputs[2];
  for (int v : {0, 1}) {
    ASSERT_TRUE(versions[v].Register(engine_->weights(), "w").ok());
    outputs[v] = Run(signature, versions[0].Inline()).output;
  }
  ASSERT_NE(outputs[0], outputs[1]);
  const int64_t first = engine_->weights().List()[0].version;  // holds versions[1]
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, runs{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      SignatureRequest mine = signature;
      mine.types.c_type = t == 2 ? OutputType::kFp32 : OutputType::kFp16;
      while (!stop) {
        const Answer answer = Run(mine, versions[0].Inline());
        ++runs;
        if (!answer.status.ok()) {
          ++wrong;
        } else if (t != 2) {
          const int64_t version = std::stoll(answer.weights.substr(2));
          if (answer.output != outputs[(version - first) % 2 == 0 ? 1 : 0]) ++wrong;
        }
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(versions[i % 2].Register(engine_->weights(), "w").ok());
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(runs, 0);
  ExpectBalanced();
}

TEST_F(EngineTest, DestructionAnswersEveryRequest) {
  Start({.queue_depth = 100});
  SampleRequest sample({{128, 512, 512}}, {.kind = DataKind::kContest});
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  const SignatureRequest signature = sample.Signature("w");
  ExecuteRequest request;
  request.signature = &signature;
  request.operands = sample.Inline();
  std::atomic<int> answers{0};
  for (int i = 0; i < 90; ++i) {
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      EXPECT_TRUE(executed.ok() || absl::IsUnavailable(executed.status()));
      ++answers;
    });
  }
  engine_.reset();
  EXPECT_EQ(answers, 90);
}

}  // namespace
}  // namespace tetrad
