// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Lack of memory at every place where the engine asks for some: of the host
// (the n-th operator new of the caller's thread throws) and of the device (the
// n-th call of each kind is refused). Each must end typed, leave the accounts
// as they were, and the next request must be served.
//
// Replaces the allocator of its program, and so stays alone.
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/faulty_device.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"

namespace {
// Calls of operator new until the one that throws; 0: none does.
thread_local int64_t fail_in = 0;
thread_local bool failed = false;

bool Fails() {
  if (fail_in == 0 || --fail_in > 0) return false;
  failed = true;
  return true;
}
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (Fails()) throw std::bad_alloc();
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  if (Fails()) throw std::bad_alloc();
  const size_t a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace tetrad {
namespace {

const std::vector<GroupShape> kShapes = {{5, 24, 64}};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    engine_ = *Engine::CreateStepped(
        [this](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          auto device = FaultyDevice::Create(
              [](std::function<void()> w) -> absl::StatusOr<std::unique_ptr<Device>> {
                return CpuDevice::Create(
                    {.threads = 1, .memory_bytes = 8 << 20, .measure_rates = false}, std::move(w));
              },
              std::move(wake));
          if (!device.ok()) return device.status();
          device_ = device->get();
          return *std::move(device);
        },
        {.pool_chunk_bytes = 64 << 10},
        {.clock = &SteadyNow, .wake_step = [] {}, .wake_housekeep = [] {}});
    EXPECT_TRUE(sample_.Register(engine_->weights(), "w").ok());
    lease_ = engine_->Attach("c", "")->lease;
    a_ = engine_->Allocate("c", lease_, Size(inline_.activations))->block;
    scales_ = engine_->Allocate("c", lease_, Size(inline_.activation_scales))->block;
    output_ = engine_->Allocate("c", lease_, kOutputBytes)->block;
    EXPECT_TRUE(engine_->Write("c", a_, 0, Bytes(inline_.activations)).ok());
    EXPECT_TRUE(engine_->Write("c", scales_, 0, Bytes(inline_.activation_scales)).ok());
  }

  static int64_t Size(std::string_view text) { return static_cast<int64_t>(text.size()); }

  // A signature that no plan was made for yet.
  SignatureRequest NewSignature() {
    SignatureRequest signature = sample_.Signature("w");
    signature.types.c_layout = OutputLayout::kColumnMajor;
    signature.c_stride = 100 + ++signatures_;
    return signature;
  }

  // The answer; the output is left in `executed_`.
  absl::Status Execute(const SignatureRequest& signature, bool in_blocks) {
    BlockOperands blocks;
    blocks.activations = {a_, 0, Size(inline_.activations)};
    blocks.activation_scales = {scales_, 0, Size(inline_.activation_scales)};
    blocks.output = {output_, 0, kOutputBytes};
    ExecuteRequest request;
    request.client = "c";
    request.signature = &signature;
    request.operands = inline_;
    if (in_blocks) {
      request.operands.activations = request.operands.activation_scales = {};
      request.blocks = &blocks;
    }
    std::optional<absl::Status> answer;
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      answer = executed.status();
      if (executed.ok()) executed_ = *std::move(executed);
    });
    fail_in = 0;  // what follows is the engine's thread
    while (!answer.has_value()) engine_->Step();
    return *answer;
  }

  // A request like any other gives the right bits.
  void ExpectServed(bool in_blocks) {
    const absl::Status status = Execute(sample_.Signature("w"), in_blocks);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<std::byte> output(static_cast<size_t>(5 * 24 * 2));
    if (in_blocks) {
      ASSERT_TRUE(engine_->Read("c", output_, 0, output).ok());
    } else {
      ASSERT_TRUE(executed_.CopyOutput(output).ok());
    }
    executed_ = Executed();
    const Verdict verdict = sample_.Judge(output);
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
  }

  // Nothing is held but what the fixture holds, `more` blocks and leases.
  void ExpectBalanced(int64_t blocks, int64_t block_bytes, int64_t leases) {
    engine_->Housekeep();
    const EngineStats stats = engine_->Stats();
    const int64_t held = Size(inline_.activations) + Size(inline_.activation_scales) + kOutputBytes;
    EXPECT_EQ(stats.blocks, 3 + blocks);
    EXPECT_EQ(stats.block_bytes, held + block_bytes);
    EXPECT_EQ(stats.leases.leases, 1 + leases);
    EXPECT_EQ(stats.plan_handles, 0);
    EXPECT_EQ(stats.in_flight, 0);
    EXPECT_EQ(stats.reclaimable, 0);
    EXPECT_EQ(stats.weights_versions, 1);
    EXPECT_EQ(stats.pool.whole_bytes, engine_->weights().List()[0].bytes);
    EXPECT_EQ(stats.pool.asked_bytes, stats.staging_bytes + held + block_bytes);
    EXPECT_EQ(stats.memory.allocated_bytes, stats.pool.reserved_bytes);
  }

  // Runs `act` with every operator new failing in turn, and every device call.
  // `act` cleans up after itself where it succeeds.
  void FailEverywhere(const std::function<absl::Status()>& act, bool device_too = true) {
    int64_t sites = 0;
    for (int64_t n = 1;; ++n) {
      SCOPED_TRACE(testing::Message() << "operator new number " << n);
      failed = false;
      fail_in = n;
      const absl::Status status = act();
      fail_in = 0;
      const bool fired = failed;
      ASSERT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      CheckAfterwards();
      if (HasFatalFailure() || HasNonfatalFailure()) return;
      if (!fired) break;
      ++sites;
      ASSERT_LT(n, 10'000);
    }
    EXPECT_GT(sites, 3);
    RecordProperty("sites", static_cast<int>(sites));
    if (!device_too) return;
    for (const Call call :
         {Call::kAllocate, Call::kBind, Call::kRebind, Call::kWrite, Call::kClear, Call::kSeal}) {
      for (int64_t n = 1;; ++n) {
        SCOPED_TRACE(testing::Message() << Name(call) << " number " << n);
        device_->FailNth(call, n, absl::ResourceExhaustedError("injected"));
        const absl::Status status = act();
        const bool fired = device_->fault_fired();
        device_->StopFailing();
        ASSERT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        CheckAfterwards();
        if (HasFatalFailure() || HasNonfatalFailure()) return;
        if (!fired) break;
        ASSERT_LT(n, 1'000);
      }
    }
  }
  void CheckAfterwards() {
    executed_ = Executed();
    ExpectBalanced(0, 0, 0);
    ExpectServed(false);
    ExpectServed(true);
  }

  static constexpr int64_t kOutputBytes = 24 * 4096 * 2;  // room for wide strides
  SampleRequest sample_{kShapes, {.kind = DataKind::kContest, .seed = 3}};
  const InlineOperands inline_ = sample_.Inline();
  FaultyDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::string lease_, a_, scales_, output_;
  Executed executed_;
  int64_t signatures_ = 0;
};

// The allocations of the calls to be tested are counted from here: arming and
// the making of arguments are not part of them.
TEST_F(OutOfMemoryTest, Prepare) {
  FailEverywhere([this]() -> absl::Status {
    const int64_t armed = std::exchange(fail_in, 0);
    const SignatureRequest signature = NewSignature();
    fail_in = armed;
    auto prepared = engine_->Prepare("c", signature);
    const int64_t left = std::exchange(fail_in, 0);
    EXPECT_TRUE(!prepared.ok() || engine_->Release("c", prepared->handle).ok());
    const absl::Status status = prepared.status();
    fail_in = left;
    return status;
  });
}

TEST_F(OutOfMemoryTest, PrepareUnderALease) {
  FailEverywhere([this]() -> absl::Status {
    const int64_t armed = std::exchange(fail_in, 0);
    const SignatureRequest signature = NewSignature();
    fail_in = armed;
    auto prepared = engine_->Prepare("c", signature, lease_);
    const int64_t left = std::exchange(fail_in, 0);
    EXPECT_TRUE(!prepared.ok() || engine_->Release("c", prepared->handle).ok());
    const absl::Status status = prepared.status();
    fail_in = left;
    return status;
  });
}

TEST_F(OutOfMemoryTest, ExecuteInline) {
  FailEverywhere([this] {
    const int64_t armed = std::exchange(fail_in, 0);
    const SignatureRequest signature = NewSignature();
    fail_in = armed;
    return Execute(signature, false);
  });
}

TEST_F(OutOfMemoryTest, ExecuteWithBlocks) {
  FailEverywhere([this] {
    const int64_t armed = std::exchange(fail_in, 0);
    const SignatureRequest signature = NewSignature();
    fail_in = armed;
    return Execute(signature, true);
  });
}

TEST_F(OutOfMemoryTest, AttachAllocateAndList) {
  FailEverywhere([this]() -> absl::Status {
    auto lease = engine_->Attach("c", "");
    if (!lease.ok()) return lease.status();
    auto block = engine_->Allocate("c", lease->lease, 5000);
    absl::Status status = block.status();
    if (block.ok()) status = engine_->ListBlocks("c", lease->lease).status();
    const int64_t left = std::exchange(fail_in, 0);
    EXPECT_TRUE(engine_->EndLease("c", lease->lease).ok());
    fail_in = left;
    return status;
  });
}

TEST_F(OutOfMemoryTest, ReplacingWeights) {
  WeightsRegistry& weights = engine_->weights();
  FailEverywhere([&]() -> absl::Status {
    const int64_t armed = std::exchange(fail_in, 0);
    WeightsSpec spec = sample_.Spec("w");
    fail_in = armed;
    const auto version = weights.Begin(std::move(spec));
    absl::Status status = version.status();
    if (status.ok()) {
      status = weights.Write("w", *version, WeightsOperand::kCodes, 0, Bytes(sample_.codes()));
    }
    if (status.ok()) {
      status = weights.Write("w", *version, WeightsOperand::kScales, 0, Bytes(sample_.scales()));
    }
    if (status.ok()) status = weights.Seal("w", *version).status();
    const int64_t left = std::exchange(fail_in, 0);
    // What broke off is given up, as the server does.
    if (!status.ok() && version.ok()) weights.Abandon("w", *version);
    fail_in = left;
    return status;
  });
}

// What lacks for ever is refused, however often room is made for another try.
TEST_F(OutOfMemoryTest, ABindingThatNeverSucceeds) {
  for (const bool in_blocks : {false, true}) {
    ExpectServed(in_blocks);  // leaves a set of another plan, which gives way
    device_->FailRandomly(Call::kBind, 1, 1, absl::ResourceExhaustedError("injected"));
    const absl::Status refused = Execute(NewSignature(), in_blocks);
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    device_->StopFailing();
    CheckAfterwards();
  }
}

// Memory that only idle staging holds is not lacking.
TEST_F(OutOfMemoryTest, IdleStagingGivesWay) {
  for (int i = 0; i < 40; ++i) {
    SignatureRequest signature = sample_.Signature("w");
    signature.types.c_layout = OutputLayout::kColumnMajor;
    signature.c_stride = 10'000 + i;  // 24 columns of that, half a megabyte: 8 MiB hold 16
    ASSERT_TRUE(Execute(signature, false).ok()) << i;
    executed_ = Executed();
  }
  ExpectBalanced(0, 0, 0);
}

}  // namespace
}  // namespace tetrad
