// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything at once, with the real threads: clients execute inline and with
// blocks, by handle and by signature, with deadlines and cancellations, while
// weights are replaced and dropped, plans evicted, leases end and memory is
// short. Every answer is bit-equal to that of the version it names, every other
// end is one that was asked for, and afterwards the accounts are balanced to
// the byte. What the interleavings are is up to the machine; the simulation
// chooses them, and the thread sanitizer watches this test.
#include <atomic>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr int kVersions = 3;
constexpr int kStrides = 4;

struct Answer {
  absl::Status status;
  std::vector<std::byte> output;
  std::string weights;
};

class ConcurrentLoadTest : public ::testing::Test {
 protected:
  ConcurrentLoadTest() {
    engine_ = *Engine::Create(
        [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create({.threads = 2, .memory_bytes = 3 << 20, .measure_rates = false},
                                   std::move(wake));
        },
        {.plan_capacity = 3,
         .staging_bytes = 200 << 10,
         .queue_depth = 12,
         .pool_chunk_bytes = 64 << 10,
         .spin = absl::Microseconds(20),  // so that rings find the thread in either state
         .leases = {.grace = absl::Milliseconds(1), .handle_idle = absl::Milliseconds(2)}});
    for (int v = 0; v < kVersions; ++v) {
      samples_.push_back(std::make_unique<SampleRequest>(
          kShapes,
          SampleOptions{.kind = DataKind::kContest, .seed = static_cast<uint64_t>(v) + 1}));
    }
    // What the activations of sample 0 give with each version: column i of the
    // padded output is the same whatever the stride.
    for (int v = 0; v < kVersions; ++v) {
      EXPECT_TRUE(samples_[v]->Register(engine_->weights(), "w").ok());
      ExecuteRequest request;
      const SignatureRequest signature = Signature(0);
      request.signature = &signature;
      request.operands = samples_[0]->Inline();
      expected_.push_back(Run(request, nullptr).output);
      EXPECT_FALSE(expected_.back().empty());
    }
    EXPECT_NE(expected_[0], expected_[1]);
  }

  static SignatureRequest Signature(int stride) {
    SignatureRequest signature;
    signature.weights = "w";
    signature.m = {kM};
    signature.c_stride = kN + 8 * stride;
    return signature;
  }

  Answer Run(const ExecuteRequest& request, std::atomic<uint64_t>* cancel_id) {
    std::promise<Answer> promise;
    const ExecutionId id = engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      Answer answer;
      answer.status = executed.status();
      if (executed.ok()) {
        const Executed done = *std::move(executed);
        answer.output.resize(static_cast<size_t>(done.output_bytes()));
        answer.status = done.CopyOutput(answer.output);
        answer.weights = done.weights();
      }
      promise.set_value(std::move(answer));
    });
    if (cancel_id != nullptr) cancel_id->store(static_cast<uint64_t>(id));
    return promise.get_future().get();
  }

  // Whether `output`, rows `stride` apart, is what the version gives.
  bool Right(const Answer& answer, int stride, std::span<const std::byte> output) {
    const int64_t version = std::stoll(answer.weights.substr(answer.weights.find('@') + 1));
    const std::vector<std::byte>& expected =
        expected_[static_cast<size_t>(contents_[static_cast<size_t>(version)].load())];
    for (size_t row = 0; row < kM; ++row) {
      const auto* const got = output.data() + row * (kN + 8 * static_cast<size_t>(stride)) * 2;
      if (!std::equal(got, got + kN * 2, expected.data() + row * kN * 2)) return false;
    }
    return true;
  }

  void Replace(int content) {
    const WeightsSpec spec = samples_[content]->Spec("w");
    WeightsRegistry& weights = engine_->weights();
    const auto version = weights.Begin(spec);
    if (!version.ok()) return Expect(absl::IsResourceExhausted(version.status()));
    ASSERT_LT(*version, static_cast<int64_t>(contents_.size()));
    contents_[static_cast<size_t>(*version)] = content;
    const auto bytes = [](const std::string& text) {
      return std::as_bytes(std::span(text.data(), text.size()));
    };
    Expect(
        weights.Write("w", *version, WeightsOperand::kCodes, 0, bytes(samples_[content]->codes()))
            .ok());
    Expect(
        weights.Write("w", *version, WeightsOperand::kScales, 0, bytes(samples_[content]->scales()))
            .ok());
    Expect(weights.Seal("w", *version).ok());
  }
  void Expect(bool condition) {
    if (!condition) ++wrong_;
  }

  void Client(int number, uint64_t seed, int rounds);
  void ClientWithBlocks(uint64_t seed, int rounds);

  static constexpr int kM = 6, kN = 40;
  const std::vector<GroupShape> kShapes = {{kM, kN, 64}};
  std::vector<std::unique_ptr<SampleRequest>> samples_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<std::byte>> expected_;
  std::array<std::atomic<int>, 4096> contents_{};  // of each version number
  std::atomic<int64_t> wrong_{0}, right_{0}, cancelled_{0}, late_{0}, refused_{0};
};

// Ends that are no fault: asked for, or for lack of room. Weights may be gone
// for a moment, a handle may have idled away.
bool MayEndWith(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status) || absl::IsAborted(status);
}

void ConcurrentLoadTest::Client(int number, uint64_t seed, int rounds) {
  Random random(seed);
  const std::string client = "client" + std::to_string(number % 2);
  std::string handle;
  int handle_stride = 0;
  for (int round = 0; round < rounds; ++round) {
    int stride = static_cast<int>(random.Below(kStrides));
    const SignatureRequest signature = Signature(stride);
    ExecuteRequest request;
    request.client = client;
    request.operands = samples_[0]->Inline();
    request.priority = static_cast<Priority>(random.Below(kPriorities));
    if (random.Below(4) == 0) {
      if (!handle.empty()) (void)engine_->Release(client, handle);
      const auto prepared = engine_->Prepare(client, signature);
      handle = prepared.ok() ? prepared->handle : "";
      handle_stride = stride;
    }
    request.signature = &signature;
    if (!handle.empty() && random.Below(2) == 0) {
      request.plan = handle;
      stride = handle_stride;
    }
    const uint64_t way = random.Below(8);
    if (way == 0) request.deadline = SteadyNow() + static_cast<Instant>(random.Below(50'000));
    std::atomic<uint64_t> id{0};
    std::thread canceller;
    if (way == 1) {
      canceller = std::thread([&] {
        for (int i = 0; i < 100 && id == 0; ++i) std::this_thread::yield();
        engine_->Cancel(static_cast<ExecutionId>(id.load()));
      });
    }
    const Answer answer = Run(request, &id);
    if (canceller.joinable()) canceller.join();
    if (answer.status.ok()) {
      ++right_;
      Expect(Right(answer, stride, answer.output));
    } else {
      Expect(MayEndWith(answer.status));
      ++(absl::IsCancelled(answer.status)          ? cancelled_
         : absl::IsDeadlineExceeded(answer.status) ? late_
                                                   : refused_);
    }
  }
  if (!handle.empty()) (void)engine_->Release(client, handle);
}

void ConcurrentLoadTest::ClientWithBlocks(uint64_t seed, int rounds) {
  Random random(seed);
  const InlineOperands operands = samples_[0]->Inline();
  const auto bytes = [](std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  };
  for (int round = 0; round < rounds; ++round) {
    const auto lease = engine_->Attach("blocks", "");
    if (!lease.ok()) return Expect(false);
    for (int use = 0; use < 4; ++use) {
      const int stride = static_cast<int>(random.Below(kStrides));
      const int64_t out_bytes = (kM - 1) * (kN + 8 * stride) * 2 + kN * 2;
      const auto a = engine_->Allocate("blocks", lease->lease,
                                       static_cast<int64_t>(operands.activations.size()));
      const auto scales = engine_->Allocate(
          "blocks", lease->lease, static_cast<int64_t>(operands.activation_scales.size()));
      const auto out = engine_->Allocate("blocks", lease->lease, kM * (kN + 8 * stride) * 2);
      if (!a.ok() || !scales.ok() || !out.ok()) continue;  // memory is short
      std::vector<std::byte> output(static_cast<size_t>(out->bytes));
      Expect(engine_->Read("blocks", out->block, 0, output).ok());
      Expect(
          std::all_of(output.begin(), output.end(), [](std::byte b) { return b == std::byte{}; }));
      Expect(engine_->Write("blocks", a->block, 0, bytes(operands.activations)).ok());
      Expect(engine_->Write("blocks", scales->block, 0, bytes(operands.activation_scales)).ok());
      BlockOperands blocks;
      blocks.activations = {a->block, 0, a->bytes};
      blocks.activation_scales = {scales->block, 0, scales->bytes};
      blocks.output = {out->block, 0, out->bytes};
      const SignatureRequest signature = Signature(stride);
      ExecuteRequest request;
      request.client = "blocks";
      request.signature = &signature;
      request.operands.alpha = operands.alpha;
      request.blocks = &blocks;
      const Answer answer = Run(request, nullptr);
      if (answer.status.ok()) {
        Expect(engine_->Read("blocks", out->block, 0, output).ok());
        Expect(Right(answer, stride, std::span(output).first(static_cast<size_t>(out_bytes))));
        ++right_;
      } else {
        Expect(MayEndWith(answer.status));
        ++refused_;
      }
      if (random.Below(2) == 0) Expect(engine_->Free("blocks", a->block).ok());
    }
    if (random.Below(2) == 0) {
      engine_->Detach(*lease);
    } else {
      Expect(engine_->EndLease("blocks", lease->lease).ok());
    }
  }
}

TEST_F(ConcurrentLoadTest, EveryAnswerIsRightAndTheAccountsBalance) {
  contents_[1] = 0;
  contents_[2] = 1;
  contents_[3] = 2;
  ASSERT_EQ(engine_->weights().List()[0].version, 3);
  constexpr int kRounds = 250;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([this, i] { Client(i, 100 + i, kRounds); });
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([this, i] { ClientWithBlocks(200 + i, kRounds / 5); });
  std::atomic<bool> stop{false};
  std::thread replacing([&] {
    Random random(300);
    for (int i = 0; i < 2000 && !stop; ++i) {
      Replace(static_cast<int>(random.Below(kVersions)));
      if (random.Below(16) == 0) (void)engine_->weights().Drop("w");
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  replacing.join();
  EXPECT_EQ(wrong_, 0);
  EXPECT_GT(right_, 0);
  EXPECT_GT(engine_->Stats().plan_evictions, 0);

  (void)engine_->weights().Drop("w");
  const Instant limit = SteadyNow() + 20'000'000'000;
  const auto quiet = [&] {
    engine_->Housekeep();
    const EngineStats now = engine_->Stats();
    return now.leases.leases == 0 && now.plan_handles == 0 && now.reclaimable == 0 &&
           now.block_bytes == 0 && now.pool.whole_bytes == 0;
  };
  while (!quiet() && SteadyNow() < limit) std::this_thread::yield();
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.in_flight, 0);
  EXPECT_EQ(stats.plan_handles, 0);
  EXPECT_EQ(stats.leases.leases, 0);
  EXPECT_EQ(stats.blocks, 0);
  EXPECT_EQ(stats.block_bytes, 0);
  EXPECT_EQ(stats.weights_versions, 0);
  EXPECT_EQ(stats.pool.whole_bytes, 0);
  EXPECT_EQ(stats.pool.asked_bytes, stats.staging_bytes);
  EXPECT_EQ(stats.memory.allocated_bytes, stats.pool.reserved_bytes);
  RecordProperty("right", static_cast<int>(right_));
  RecordProperty("cancelled", static_cast<int>(cancelled_));
  RecordProperty("late", static_cast<int>(late_));
  RecordProperty("refused", static_cast<int>(refused_));
}

}  // namespace
}  // namespace tetrad
