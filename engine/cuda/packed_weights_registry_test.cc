// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Weights that are sealed on a device that packs them, on a simulated driver.
#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_device.h"
#include "engine/packing_batches.h"
#include "engine/signature_request.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad::cuda {
namespace {

// Packed they take two granules of 64 KiB, as they are written one, and scratch takes one.
const std::vector<GroupDims> kDims = {{5, 32}, {130, 96}, {130, 96}, {3, 32}, {1, 640}, {3, 64}};
constexpr int64_t kRuns = 5;    // of groups of one size, and as many launches
constexpr int64_t kCopies = 2;  // of the scales, and of the codes of all groups at once
constexpr int64_t kGranule = 64 << 10;
constexpr int64_t kHeld = 2 * kGranule;

class PackedWeightsTest : public ::testing::Test {
 protected:
  PackedWeightsTest() {
    TETRAD_CHECK(simulated_.Create().ok());
    Pool::Upstream upstream = Pool::From(device());
    upstream.allocate = [this, allocate = std::move(upstream.allocate)](int64_t bytes) {
      auto allocation = allocate(bytes);
      most_held_ = std::max(most_held_, device().memory_use().allocated_bytes);
      if (after_allocating_) std::exchange(after_allocating_, nullptr)();
      return allocation;
    };
    // No block shares a chunk with another, so that none stays when the block is given back.
    pool_.emplace(std::move(upstream), Pool::Options{.chunk_bytes = FreeRanges::kGranuleBytes});
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
    EXPECT_EQ(pool_->stats().reserved_bytes, bytes);
    simulated_.ExpectAccounted();
  }

  int64_t copies() const { return simulated_.driver.calls(EntryPoint::kMemcpyDtoDAsync); }

  SimulatedDevice simulated_;
  int64_t most_held_ = 0;                   // of the device, at any time
  std::function<void()> after_allocating_;  // called once
  std::vector<uint8_t> expected_;           // of what was written last, packed
  std::optional<Pool> pool_;
  Reclaimer reclaimer_{[] {}};
  std::optional<WeightsRegistry> registry_;
};

TEST_F(PackedWeightsTest, SealingPacksInTheMemoryThatWasWritten) {
  // Also where plain and packed form take the same.
  for (const auto& dims : {kDims, std::vector<GroupDims>(5, {128, 192})}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      const int64_t version = Written(1, dims, layout);
      const int64_t held = RoundUp(PackedWeightBytes(dims), kGranule);
      const int64_t scratch = RoundUp(PackingBatches(dims, layout).scratch_bytes(), kGranule);
      ExpectHeld(1, held);
      EXPECT_EQ(registry_->use().bytes, held);
      most_held_ = 0;
      ExpectServed(version, registry_->Seal("w", version));
      EXPECT_EQ(most_held_, held + scratch);
      EXPECT_EQ(*registry_->Drop("w"), 1);
      ExpectHeld(0, 0);
    }
  }
}

TEST_F(PackedWeightsTest, WithoutMemoryForScratchNothingIsLost) {
  const int64_t version = Written(1);
  const int64_t limit = device().memory_use().limit_bytes;
  const Allocation rest = *device().Allocate(limit - kHeld - kGranule);
  const Allocation scratch = *device().Allocate(kGranule);
  const absl::Status refused = registry_->Seal("w", version).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(Text(refused),
              ::testing::HasSubstr(absl::StrCat("weights w@", version, ": scratch to pack them")));
  EXPECT_EQ(device().memory_use().allocated_bytes, limit);
  EXPECT_EQ(registry_->use().bytes, kHeld);
  EXPECT_EQ(copies(), 0);
  // Scratch is all it takes.
  ASSERT_TRUE(device().Free(scratch.id).ok());
  const auto info = registry_->Seal("w", version);
  EXPECT_EQ(most_held_, limit);
  ASSERT_TRUE(device().Free(rest.id).ok());
  ExpectServed(version, info);
}

// Work is slow, so that what a failed call leaves under way would still use its memory.
TEST_F(PackedWeightsTest, ALackAtAnyCallLeavesTheWeightsOrForgetsThem) {
  int kept = 0, lost = 0;
  for (int64_t n = 0, failed = 1; failed != 0; ++n) {
    const int64_t version = Written(static_cast<uint64_t>(n)), copied = copies();
    simulated_.driver.DelayWork(std::chrono::milliseconds(1));
    simulated_.driver.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
    auto info = registry_->Seal("w", version);
    failed = simulated_.driver.faults_used();
    SCOPED_TRACE(absl::StrCat("call ", n, ": ", simulated_.driver.last_fault()));
    simulated_.driver.ClearFaults();
    ASSERT_TRUE(device().health().ok()) << device().health();
    if (!info.ok()) {
      const absl::Status resolved = registry_->Resolve("w").status();
      if (absl::IsNotFound(resolved)) {
        ++lost;
        EXPECT_TRUE(absl::IsDataLoss(info.status())) << info.status();
        EXPECT_THAT(Text(info.status()),
                    ::testing::HasSubstr(absl::StrCat("weights w@", version, ": lost")));
        ExpectHeld(0, 0);
        EXPECT_EQ(registry_->use().versions, 0);
        EXPECT_TRUE(absl::IsNotFound(registry_->Seal("w", version).status()));
        continue;
      }
      ++kept;
      EXPECT_TRUE(absl::IsResourceExhausted(info.status())) << info.status();
      EXPECT_TRUE(absl::IsFailedPrecondition(resolved)) << resolved;
      ExpectHeld(1, kHeld);
      info = registry_->Seal("w", version);
    }
    EXPECT_EQ(copies() - copied, kCopies) << "packed twice, or not at all";
    ExpectServed(version, info);
    EXPECT_EQ(*registry_->Drop("w"), 1);
    ExpectHeld(0, 0);
  }
  EXPECT_GE(kept, 5) << "the memory of scratch, and read-only access";
  EXPECT_EQ(lost, kCopies + kRuns);
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
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_TRUE(absl::IsInternal(device().health()));
  EXPECT_TRUE(absl::IsNotFound(registry_->Resolve("w").status()));
}

TEST_F(PackedWeightsTest, AFaultOfThePackingEndsTheDevice) {
  const int64_t version = Written(1);
  // Clearing of scratch, the copies, the first launch.
  simulated_.driver.BreakAtWork(1 + kCopies, CUDA_ERROR_ILLEGAL_ADDRESS);
  const absl::Status lost = registry_->Seal("w", version).status();
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_THAT(Text(lost), ::testing::HasSubstr(absl::StrCat("weights w@", version, ": lost")));
  EXPECT_TRUE(absl::IsInternal(device().health()));
  EXPECT_EQ(registry_->use().versions, 0);
}

// While one version is packed another, of other shapes, is sealed under its name: the one waits,
// packed, until it can be published.
TEST_F(PackedWeightsTest, WhatCannotBePublishedYetIsNotPackedAgain) {
  const std::vector<GroupDims> others = {{5, 32}, {130, 96}};
  const int64_t other = Written(1, others), version = Written(2);
  after_allocating_ = [&] { EXPECT_TRUE(registry_->Seal("w", other).ok()); };
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = registry_->Seal("w", version).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(Text(refused), ::testing::HasSubstr("a replacement needs the shapes"));
    EXPECT_EQ(copies(), 2 * kCopies);
  }
  EXPECT_EQ((*registry_->Resolve("w"))->version(), other);
  const std::byte byte{};
  EXPECT_FALSE(registry_->Write("w", version, WeightsOperand::kCodes, 0, {&byte, 1}).ok());
  EXPECT_EQ(*registry_->Drop(absl::StrCat("w@", other)), 1);
  ExpectServed(version, registry_->Seal("w", version));
  EXPECT_EQ(copies(), 2 * kCopies);
}

TEST_F(PackedWeightsTest, WhatIsDroppedWhileItIsPackedLeavesNothing) {
  const int64_t version = Written(1);
  after_allocating_ = [&] { EXPECT_EQ(*registry_->Drop("w"), 1); };
  const absl::Status dropped = registry_->Seal("w", version).status();
  EXPECT_TRUE(absl::IsNotFound(dropped)) << dropped;
  EXPECT_EQ(copies(), kCopies);
  EXPECT_EQ(registry_->use().versions, 0);
  ExpectHeld(0, 0);
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
