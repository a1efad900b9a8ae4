// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Weights that are sealed on a device that packs them, on a simulated driver.
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_device.h"
#include "engine/signature_request.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad::cuda {
namespace {

// Packed they take two granules of 64 KiB, as they were written one.
const std::vector<GroupDims> kDims = {{5, 32}, {130, 96}, {130, 96}, {3, 32}, {1, 640}, {3, 64}};
constexpr int64_t kGranule = 64 << 10;

class PackedWeightsTest : public ::testing::Test {
 protected:
  PackedWeightsTest() {
    TETRAD_CHECK(simulated_.Create().ok());
    pool_.emplace(Pool::From(device()), Pool::Options{});
    registry_.emplace(device(), *pool_, reclaimer_, WeightsRegistry::Limits{}, [] {});
  }
  ~PackedWeightsTest() override { registry_.reset(), reclaimer_.Step(); }
  Device& device() { return *simulated_.device; }

  // Begins a version and writes all of it.
  int64_t Written(uint64_t seed, const std::vector<GroupDims>& dims = kDims,
                  ScaleLayout layout = ScaleLayout::kLinear) {
    std::vector<uint8_t> codes, scales;
    expected_.clear();
    for (const auto [n, k] : dims) {
      const auto drawn = sm90::DrawWeights({.n = n, .k = k, .scale_layout = layout}, ++seed);
      const std::vector<uint8_t> packed = sm90::Packed(drawn);
      codes.insert(codes.end(), drawn.codes.begin(), drawn.codes.end());
      scales.insert(scales.end(), drawn.scales.begin(), drawn.scales.end());
      expected_.insert(expected_.end(), packed.begin(), packed.end());
    }
    const int64_t version =
        *registry_->Begin({.name = "w", .groups = dims, .scale_layout = layout});
    const auto write = [&](WeightsOperand operand, const std::vector<uint8_t>& data) {
      return registry_->Write("w", version, operand, 0, std::as_bytes(std::span(data)));
    };
    EXPECT_TRUE(write(WeightsOperand::kCodes, codes).ok());
    EXPECT_TRUE(write(WeightsOperand::kScales, scales).ok());
    return version;
  }
  // What the name resolves to is `version`, packed, and all that is held.
  void ExpectServed(int64_t version, const absl::StatusOr<WeightsInfo>& sealed) {
    ASSERT_TRUE(sealed.ok()) << sealed.status();
    reclaimer_.Step();
    const auto weights = *registry_->Resolve("w");
    const int64_t packed_bytes = std::ssize(expected_);
    EXPECT_EQ(weights->version(), version);
    EXPECT_EQ(weights->layout(), ScaleLayout::kPacked);
    EXPECT_EQ(weights->codes().bytes, packed_bytes);
    EXPECT_EQ(weights->scales().bytes, 0);
    EXPECT_EQ(sealed->bytes, RoundUp(packed_bytes, kGranule));
    EXPECT_EQ(registry_->use().bytes, sealed->bytes);
    ExpectHeld(1, sealed->bytes);
    std::vector<uint8_t> data(expected_.size());
    const auto out = std::as_writable_bytes(std::span(data));
    EXPECT_TRUE(device().Read(weights->codes().allocation, 0, out).ok());
    EXPECT_EQ(data, expected_);
    EXPECT_TRUE(absl::IsFailedPrecondition(device().Write(weights->codes().allocation, 0, out)));
  }
  void ExpectHeld(int64_t allocations, int64_t bytes) {
    reclaimer_.Step();
    EXPECT_EQ(device().memory_use().allocations, allocations);
    EXPECT_EQ(device().memory_use().allocated_bytes, bytes);
    EXPECT_EQ(pool_->stats().whole_bytes, bytes);
    simulated_.ExpectAccounted();
  }

  SimulatedDevice simulated_;
  std::vector<uint8_t> expected_;  // of what was written last, packed
  std::optional<Pool> pool_;
  Reclaimer reclaimer_{[] {}};
  std::optional<WeightsRegistry> registry_;
};

TEST_F(PackedWeightsTest, SealingPacksAndGivesThePlainMemoryBack) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    const int64_t version = Written(1, kDims, layout);
    ExpectHeld(1, kGranule);
    ExpectServed(version, registry_->Seal("w", version));
    EXPECT_EQ(*registry_->Drop("w"), 1);
    ExpectHeld(0, 0);
  }
}

TEST_F(PackedWeightsTest, WithoutMemoryForThePackedCopyNothingIsLost) {
  const int64_t version = Written(1);
  const int64_t most = device().memory_use().limit_bytes - kGranule;
  const Allocation rest = *device().Allocate(most - kGranule);
  const absl::Status refused = registry_->Seal("w", version).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(device().memory_use().allocated_bytes, most);
  ASSERT_TRUE(device().Free(rest.id).ok());
  ExpectServed(version, registry_->Seal("w", version));
}

// Work is slow, so that what a failed call leaves under way would still use its memory.
TEST_F(PackedWeightsTest, ALackAtAnyCallOfThePackingLeavesTheWrittenWeights) {
  int failures = 0;
  for (int64_t n = 0, failed = 1; failed != 0; ++n) {
    const int64_t version = Written(static_cast<uint64_t>(n));
    simulated_.driver.DelayWork(std::chrono::milliseconds(1));
    simulated_.driver.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
    auto info = registry_->Seal("w", version);
    failed = simulated_.driver.faults_used();
    SCOPED_TRACE(absl::StrCat("call ", n, ": ", simulated_.driver.last_fault()));
    simulated_.driver.ClearFaults();
    ASSERT_TRUE(device().health().ok()) << device().health();
    if (!info.ok()) {
      ++failures;
      EXPECT_TRUE(absl::IsResourceExhausted(info.status())) << info.status();
      ExpectHeld(1, kGranule);
      EXPECT_TRUE(absl::IsFailedPrecondition(registry_->Resolve("w").status()));
      info = registry_->Seal("w", version);
    }
    ExpectServed(version, info);
    EXPECT_EQ(*registry_->Drop("w"), 1);
  }
  EXPECT_GE(failures, 9) << "memory, a launch for each run of one size, the seal";
}

// The last wait of a Seal(); what it could not wait for may still use the memory.
TEST_F(PackedWeightsTest, AWaitForThePackingThatFailsEndsTheDevice) {
  const auto waits = [&] { return simulated_.driver.calls(EntryPoint::kStreamSynchronize); };
  const int64_t first = Written(1), before = waits();
  ASSERT_TRUE(registry_->Seal("w", first).ok());
  const int64_t last = waits() - before - 1;
  EXPECT_EQ(*registry_->Drop("w"), 1);
  reclaimer_.Step();
  const int64_t version = Written(2);
  simulated_.driver.DelayWork(std::chrono::milliseconds(1));
  simulated_.driver.FailNth(EntryPoint::kStreamSynchronize, last, CUDA_ERROR_INVALID_VALUE);
  const absl::Status lost = registry_->Seal("w", version).status();
  EXPECT_TRUE(absl::IsInternal(lost)) << lost;
  EXPECT_TRUE(absl::IsInternal(device().health()));
  EXPECT_TRUE(absl::IsFailedPrecondition(registry_->Resolve("w").status()));
}

TEST_F(PackedWeightsTest, AReplacementOfOtherShapesLeavesTheOldVersionServing) {
  const int64_t first = Written(1);
  const auto info = registry_->Seal("w", first);
  const std::vector<uint8_t> served = expected_;
  using Shapes = std::pair<std::vector<GroupDims>, ScaleLayout>;
  for (const auto& [dims, layout] :
       {Shapes{{{5, 32}, {130, 96}}, ScaleLayout::kLinear}, {kDims, ScaleLayout::kBlocked}}) {
    const int64_t other = Written(7, dims, layout);
    const absl::Status refused = registry_->Seal("w", other).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(Text(refused), ::testing::HasSubstr("a replacement needs the shapes"));
    EXPECT_EQ(*registry_->Drop(absl::StrCat("w@", other)), 1);
    expected_ = served;
    ExpectServed(first, info);
  }
}

TEST_F(PackedWeightsTest, SignaturesSayThatTheWeightsArePacked) {
  ASSERT_TRUE(registry_->Seal("w", Written(1)).ok());
  const auto weights = *registry_->Resolve("w");
  SignatureRequest request;
  request.m.assign(kDims.size(), 2);
  const Signature signature = *SignatureFor(request, *weights, device().limits().uuid, {});
  EXPECT_EQ(signature.types.b_scale_layout, ScaleLayout::kPacked);
  EXPECT_EQ(WeightCodeBytes(signature), weights->codes().bytes);
  EXPECT_EQ(WeightScaleBytes(signature), 0);
  EXPECT_TRUE(CheckWeightsFit(signature, *weights).ok());
  Signature plain = signature;
  plain.types.b_scale_layout = ScaleLayout::kLinear;
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckWeightsFit(plain, *weights)));
}

}  // namespace
}  // namespace tetrad::cuda
