// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Versions written by several threads at once: ranges that overlap and that do
// not, sources that fail, and Seal(), Abandon() and Drop() while copies are
// under way. The thread sanitizer watches.
#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/faulty_device.h"
#include "engine/weights.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 4;
// Groups whose planes have borders at odd places, and padding if blocked.
const std::vector<GroupDims> kGroups = {{130, 96}, {1, 32}, {128, 64}, {7, 160}};

class WeightsConcurrencyTest : public ::testing::Test {
 protected:
  WeightsConcurrencyTest()
      : device_(*FaultyDevice::Create(
            [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
              return CpuDevice::Create(
                  {.threads = 1, .memory_bytes = 8 << 20, .measure_rates = false}, std::move(wake));
            },
            [] {})),
        pool_(Pool::From(*device_), {}),
        registry_(*device_, pool_, reclaimer_, {}, [] {}) {}

  int64_t Begin(ScaleLayout layout = ScaleLayout::kLinear) {
    const auto version = registry_.Begin({.name = "w", .groups = kGroups, .scale_layout = layout});
    EXPECT_TRUE(version.ok()) << version.status();
    return *version;
  }

  static int64_t Bytes(WeightsOperand operand, ScaleLayout layout = ScaleLayout::kLinear) {
    int64_t bytes = 0;
    for (const auto [n, k] : kGroups) {
      bytes += operand == WeightsOperand::kCodes ? CodeBytes(n, k) : ScalePlaneBytes(layout, n, k);
    }
    return bytes;
  }

  // The byte that belongs at a place of an operand; legal as a scale.
  static std::byte At(WeightsOperand operand, int64_t offset) {
    return std::byte((offset * 7 + offset / 251 + static_cast<int64_t>(operand)) % 0x7F);
  }

  absl::Status FillRange(int64_t version, WeightsOperand operand, int64_t offset, int64_t bytes) {
    int64_t at = offset;
    return registry_.Fill("w", version, operand, offset, bytes, [&](std::span<std::byte> piece) {
      for (std::byte& byte : piece) byte = At(operand, at++);
      return absl::OkStatus();
    });
  }

  void FillAll(int64_t version) {
    for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
      ASSERT_TRUE(FillRange(version, operand, 0, Bytes(operand)).ok());
    }
  }

  void ExpectContent() {
    const auto weights = registry_.Resolve("w");
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
      const BlockRef block =
          operand == WeightsOperand::kCodes ? (*weights)->codes() : (*weights)->scales();
      std::vector<std::byte> data(static_cast<size_t>(block.bytes));
      ASSERT_TRUE(device_->Read(block.allocation, block.offset, data).ok());
      for (int64_t i = 0; i < block.bytes; ++i) {
        ASSERT_EQ(data[static_cast<size_t>(i)], At(operand, i)) << i;
      }
    }
  }

  void ExpectNothingHeld() {
    reclaimer_.Step();
    EXPECT_EQ(device_->memory_use().allocations, 0);
    EXPECT_EQ(registry_.use().versions, 0);
  }

  static void OnThreads(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
  }

  const std::unique_ptr<FaultyDevice> device_;
  Pool pool_;
  Reclaimer reclaimer_{[] {}};
  WeightsRegistry registry_;
};

TEST_F(WeightsConcurrencyTest, ThreadsWriteRangesOfTheirOwn) {
  for (const int64_t piece : {0, 1, 37, 1000}) {
    device_->FillInPieces(piece);
    const int64_t version = Begin();
    for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
      std::atomic<int64_t> next{0};
      OnThreads([&](int) {
        constexpr int64_t kRange = 101;
        for (int64_t at; (at = next.fetch_add(kRange)) < Bytes(operand);) {
          const absl::Status status =
              FillRange(version, operand, at, std::min(kRange, Bytes(operand) - at));
          EXPECT_TRUE(status.ok()) << status;
        }
      });
    }
    ASSERT_TRUE(registry_.Seal("w", version).ok());
    ExpectContent();
  }
}

// Every byte is written by exactly one of those who want to, whoever that is.
TEST_F(WeightsConcurrencyTest, OverlappingRangesAreWrittenOnce) {
  const int64_t version = Begin();
  for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
    std::atomic<int64_t> written{0};
    OnThreads([&](int t) {
      Random random(static_cast<uint64_t>(t) + 1);
      for (int i = 0; i < 300; ++i) {
        const int64_t at = random.Below(static_cast<uint32_t>(Bytes(operand)));
        const int64_t bytes = std::min<int64_t>(1 + random.Below(200), Bytes(operand) - at);
        const absl::Status status = FillRange(version, operand, at, bytes);
        if (status.ok()) written += bytes;
        EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
      }
    });
    for (int64_t at = 0; at < Bytes(operand); ++at) {
      if (FillRange(version, operand, at, 1).ok()) ++written;
    }
    EXPECT_EQ(written, Bytes(operand));
  }
  ASSERT_TRUE(registry_.Seal("w", version).ok());
  ExpectContent();
}

TEST_F(WeightsConcurrencyTest, AFailedSourceLeavesItsRangeUnwritten) {
  device_->FillInPieces(50);
  const int64_t version = Begin();
  int calls = 0;
  const absl::Status failed =
      registry_.Fill("w", version, WeightsOperand::kCodes, 100, 500, [&](std::span<std::byte>) {
        return ++calls < 3 ? absl::OkStatus() : absl::DataLossError("the source is gone");
      });
  EXPECT_EQ(failed, absl::DataLossError("the source is gone"));
  EXPECT_EQ(calls, 3);
  const absl::Status thrown =
      registry_.Fill("w", version, WeightsOperand::kCodes, 100, 500,
                     [&](std::span<std::byte>) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(thrown)) << thrown;
  device_->FailNth(Call::kWrite, 1, absl::InternalError("injected"));
  EXPECT_EQ(FillRange(version, WeightsOperand::kCodes, 0, 700), absl::InternalError("injected"));
  EXPECT_THAT(std::string(registry_.Seal("w", version).status().message()),
              HasSubstr("bytes missing, the first at 0"));
  FillAll(version);
  ASSERT_TRUE(registry_.Seal("w", version).ok());
  ExpectContent();
}

// Wherever the device's pieces begin and end: the first bad scale is named, and
// what was padding is zero.
TEST_F(WeightsConcurrencyTest, ScalesAreCheckedAcrossPieces) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    const int64_t bytes = Bytes(WeightsOperand::kScales, layout);
    // The padding, at worst, and legal scales.
    std::vector<std::byte> scales(static_cast<size_t>(bytes), std::byte{0xFF});
    std::vector<std::byte> want(static_cast<size_t>(bytes));
    int64_t plane = 0, bad = 0;
    for (const auto [n, k] : kGroups) {
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t block = 0; block < k / kScaleBlock; ++block) {
          const int64_t at = plane + ScaleOffset(layout, row, block, k);
          scales[static_cast<size_t>(at)] = want[static_cast<size_t>(at)] =
              At(WeightsOperand::kScales, at);
          if (n == 128 && row == 77 && block == 2) bad = at;
        }
      }
      plane += ScalePlaneBytes(layout, n, k);
    }
    for (const int64_t piece : {int64_t{0}, int64_t{1}, int64_t{100}, bad, bad + 1, bad + 2}) {
      device_->FillInPieces(piece);
      const int64_t version = Begin(layout);
      std::vector<std::byte> wrong = scales;
      wrong[static_cast<size_t>(bad)] = std::byte{0x80};
      EXPECT_THAT(
          std::string(registry_.Write("w", version, WeightsOperand::kScales, 0, wrong).message()),
          HasSubstr("scales: group 2 row 77 block 2: byte 0x80 has the sign bit set"));
      ASSERT_TRUE(registry_.Write("w", version, WeightsOperand::kScales, 0, scales).ok());
      ASSERT_TRUE(
          FillRange(version, WeightsOperand::kCodes, 0, Bytes(WeightsOperand::kCodes)).ok());
      ASSERT_TRUE(registry_.Seal("w", version).ok());
      const auto weights = *registry_.Resolve("w");
      std::vector<std::byte> got(static_cast<size_t>(bytes));
      ASSERT_TRUE(device_->Read(weights->scales().allocation, weights->scales().offset, got).ok());
      EXPECT_EQ(got, want);
    }
    ASSERT_TRUE(registry_.Drop("w").ok());
  }
}

// What happens to a version while a copy into it is under way.
TEST_F(WeightsConcurrencyTest, SealAbandonAndDropDuringACopy) {
  for (const char* what : {"seal", "abandon", "drop"}) {
    SCOPED_TRACE(what);
    const int64_t version = Begin();
    ASSERT_TRUE(FillRange(version, WeightsOperand::kCodes, 0, Bytes(WeightsOperand::kCodes)).ok());
    const int64_t scale_bytes = Bytes(WeightsOperand::kScales);
    ASSERT_TRUE(FillRange(version, WeightsOperand::kScales, 0, scale_bytes - 10).ok());
    std::latch copying(1), decided(1);
    absl::Status copied;
    std::jthread writer([&] {
      copied = registry_.Fill("w", version, WeightsOperand::kScales, scale_bytes - 10, 10,
                              [&](std::span<std::byte> piece) {
                                copying.count_down();
                                decided.wait();
                                int64_t at = scale_bytes - 10;
                                for (std::byte& b : piece) b = At(WeightsOperand::kScales, at++);
                                return absl::OkStatus();
                              });
    });
    copying.wait();
    if (what == std::string("seal")) {
      const absl::Status refused = registry_.Seal("w", version).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(refused));
      EXPECT_THAT(std::string(refused.message()), HasSubstr("are being written at the moment"));
    } else if (what == std::string("abandon")) {
      registry_.Abandon("w", version);
    } else {
      EXPECT_EQ(*registry_.Drop("w"), 1);
    }
    reclaimer_.Step();
    EXPECT_EQ(device_->memory_use().allocations, 1) << "held by the copy";
    decided.count_down();
    writer.join();
    if (what == std::string("seal")) {
      EXPECT_TRUE(copied.ok()) << copied;
      ASSERT_TRUE(registry_.Seal("w", version).ok());
      ExpectContent();
      ASSERT_TRUE(registry_.Drop("w").ok());
    } else {
      EXPECT_EQ(copied.ok(), what == std::string("drop")) << copied;
      EXPECT_TRUE(absl::IsNotFound(registry_.Seal("w", version).status()));
    }
    ExpectNothingHeld();
  }
}

// The same without an order: whatever wins, nothing is left behind.
TEST_F(WeightsConcurrencyTest, EndsRaceWithWriters) {
  for (int round = 0; round < 100; ++round) {
    const int64_t version = Begin();
    OnThreads([&](int t) {
      if (t == 0) {
        if (round % 3 == 0) registry_.Abandon("w", version);
        if (round % 3 == 1) registry_.Drop("w").IgnoreError();
        while (round % 3 == 2 && !registry_.Seal("w", version).ok()) std::this_thread::yield();
        return;
      }
      for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
        const int64_t share = Bytes(operand) / (kThreads - 1);
        const int64_t begin = (t - 1) * share;
        const int64_t end = t == kThreads - 1 ? Bytes(operand) : begin + share;
        for (int64_t at = begin; at < end; at += 64) {
          const absl::Status status =
              FillRange(version, operand, at, std::min<int64_t>(64, end - at));
          EXPECT_TRUE(status.ok() || round % 3 != 2) << status;
        }
      }
    });
    if (round % 3 == 2) {
      ExpectContent();
      ASSERT_TRUE(registry_.Drop("w").ok());
    }
    ExpectNothingHeld();
  }
}

}  // namespace
}  // namespace tetrad
