// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <cmath>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/scale_check.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest()
      : device_(*CpuDevice::Create({.threads = 1, .memory_bytes = 1 << 20, .measure_rates = false},
                                   [] {})),
        pool_(Pool::From(*device_), {}),
        registry_(*device_, pool_, reclaimer_, {.max_versions = 4, .max_pieces = 3},
                  [this] { ++retired_; }) {}

  static WeightsSpec Spec(const std::string& name,
                          std::vector<GroupDims> groups = {{6, 64}, {5, 32}}) {
    WeightsSpec spec;
    spec.name = name;
    spec.groups = std::move(groups);
    return spec;
  }
  absl::Status Write(const std::string& name, int64_t version, WeightsOperand operand,
                     int64_t offset, int64_t bytes, uint8_t value) {
    const std::vector<std::byte> data(static_cast<size_t>(bytes), std::byte{value});
    return registry_.Write(name, version, operand, offset, data);
  }
  // Fills every byte of a version of Spec().
  void Fill(const std::string& name, int64_t version, uint8_t code) {
    ASSERT_TRUE(Write(name, version, WeightsOperand::kCodes, 0, 6 * 32 + 5 * 16, code).ok());
    ASSERT_TRUE(Write(name, version, WeightsOperand::kScales, 0, 6 * 4 + 5 * 2, 0x38).ok());
  }
  int64_t Sealed(const std::string& name, uint8_t code) {
    const int64_t version = *registry_.Begin(Spec(name));
    Fill(name, version, code);
    EXPECT_TRUE(registry_.Seal(name, version).ok());
    return version;
  }
  std::byte FirstByte(const WeightsVersion& weights) {
    std::byte byte;
    EXPECT_TRUE(device_->Read(weights.codes().allocation, 0, {&byte, 1}).ok());
    return byte;
  }

  std::unique_ptr<CpuDevice> device_;
  int retired_ = 0;
  Pool pool_;
  Reclaimer reclaimer_{[] {}};
  WeightsRegistry registry_;
};

TEST_F(WeightsTest, SealedWeightsResolveByNameAndVersion) {
  const int64_t version = Sealed("a/b.c_d-1", 0x21);
  const auto weights = registry_.Resolve("a/b.c_d-1");
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)->version(), version);
  EXPECT_EQ(FirstByte(**weights), std::byte{0x21});
  EXPECT_TRUE(registry_.Resolve((*weights)->reference()).ok());
  EXPECT_TRUE(absl::IsNotFound(registry_.Resolve("a/b.c_d-1@999").status()));
  EXPECT_TRUE(absl::IsNotFound(registry_.Resolve("unknown").status()));
  // Sealed memory cannot be written, by registry or device.
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Write("a/b.c_d-1", version, WeightsOperand::kCodes, 0, 1, 0)));
  const std::byte byte{};
  EXPECT_TRUE(
      absl::IsFailedPrecondition(device_->Write((*weights)->codes().allocation, 0, {&byte, 1})));
}

TEST_F(WeightsTest, ReferencesAreParsedStrictly) {
  Sealed("w", 1);
  for (const char* text : {"", "w@", "w@0", "w@-1", "w@1x", "w@@1", "w ", "w\n",
                           "w@99999999999999999999", "caf\xc3\xa9"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(registry_.Resolve(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(registry_.Resolve(std::string(129, 'a')).status()));
  EXPECT_TRUE(absl::IsNotFound(registry_.Resolve(std::string(128, 'a')).status()));
}

TEST_F(WeightsTest, SpecsAreChecked) {
  const auto refused = [&](WeightsSpec spec) {
    const auto begun = registry_.Begin(std::move(spec));
    EXPECT_EQ(begun.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(begun.status().message());
  };
  EXPECT_THAT(refused(Spec("w", {})), HasSubstr("groups=0"));
  EXPECT_THAT(refused(Spec("w", {{4, 32}, {0, 32}})), HasSubstr("group 1: n=0"));
  EXPECT_THAT(refused(Spec("w", {{4, 48}})),
              HasSubstr("group 0: k=48: wanted a positive multiple"));
  EXPECT_THAT(refused(Spec("w", {{2147483647, 2147483616}})), HasSubstr("exceed the limit"));
  EXPECT_THAT(refused(Spec("w@1")), HasSubstr("name:"));
  WeightsSpec spec = Spec("w");
  spec.alpha = {1.0f};
  EXPECT_THAT(refused(spec), HasSubstr("alpha: 1 values for 2 groups"));
  spec.alpha = {1.0f, NAN};
  EXPECT_THAT(refused(spec), HasSubstr("group 1: alpha=nan: wanted a finite number"));
  reclaimer_.Step();
  EXPECT_EQ(device_->memory_use().allocations, 0);
}

TEST_F(WeightsTest, EveryByteExactlyOnceInAnyOrder) {
  const int64_t version = *registry_.Begin(Spec("w"));
  const int64_t codes = 6 * 32 + 5 * 16;
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 100, 50, 7).ok());
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 0, 100, 7).ok());
  for (const auto& [offset, bytes] :
       {std::pair<int64_t, int64_t>{99, 1}, {149, 2}, {0, 1}, {50, 200}}) {
    EXPECT_THAT(
        std::string(Write("w", version, WeightsOperand::kCodes, offset, bytes, 7).message()),
        HasSubstr("already written"));
  }
  for (const auto& [offset, bytes] :
       {std::pair<int64_t, int64_t>{-1, 1}, {codes, 1}, {codes - 1, 2}}) {
    EXPECT_THAT(
        std::string(Write("w", version, WeightsOperand::kCodes, offset, bytes, 7).message()),
        HasSubstr("exceed the operand's 272 bytes"));
  }
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, codes, 0, 7).ok());
  EXPECT_THAT(std::string(registry_.Seal("w", version).status().message()),
              HasSubstr("codes: 122 of 272 bytes missing, the first at 150"));
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 150, codes - 150, 7).ok());
  EXPECT_THAT(std::string(registry_.Seal("w", version).status().message()),
              HasSubstr("scales: 34 of 34 bytes missing, the first at 0"));
  EXPECT_TRUE(absl::IsFailedPrecondition(registry_.Resolve("w").status()));
  EXPECT_TRUE(Write("w", version, WeightsOperand::kScales, 0, 34, 0x38).ok());
  EXPECT_TRUE(registry_.Seal("w", version).ok());
  EXPECT_TRUE(registry_.Resolve("w").ok());
}

// Each piece costs host memory, far more of it than the bytes a client sends.
TEST_F(WeightsTest, PiecesWithGapsBetweenThemAreBounded) {
  const int64_t version = *registry_.Begin(Spec("w"));
  for (const int64_t offset : {0, 2, 4}) {
    ASSERT_TRUE(Write("w", version, WeightsOperand::kCodes, offset, 1, 7).ok());
  }
  const absl::Status refused = Write("w", version, WeightsOperand::kCodes, 6, 1, 7);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  // What joins a piece is taken, and makes room.
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 5, 1, 7).ok());
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 3, 1, 7).ok());
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 7, 265, 7).ok());
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 1, 1, 7).ok());
  EXPECT_TRUE(Write("w", version, WeightsOperand::kCodes, 6, 1, 7).ok());
  ASSERT_TRUE(Write("w", version, WeightsOperand::kScales, 0, 34, 0x38).ok());
  EXPECT_TRUE(registry_.Seal("w", version).ok());
}

TEST_F(WeightsTest, IllegalScalesAreNamed) {
  const int64_t version = *registry_.Begin(Spec("w"));
  // Group 1 starts at byte 24; two blocks a row.
  EXPECT_THAT(
      std::string(Write("w", version, WeightsOperand::kScales, 24 + 3 * 2 + 1, 1, 0x7F).message()),
      HasSubstr("group 1 row 3 block 1: byte 0x7f is NaN"));
  EXPECT_THAT(std::string(Write("w", version, WeightsOperand::kScales, 5, 1, 0x80).message()),
              HasSubstr("group 0 row 1 block 1: byte 0x80 has the sign bit set"));
  EXPECT_TRUE(Write("w", version, WeightsOperand::kScales, 5, 1, 0x7E).ok());
}

TEST_F(WeightsTest, ReplacementIsAtomicAndKeepsWhatIsInUse) {
  Sealed("w", 0x11);
  auto first = *registry_.Resolve("w");
  reclaimer_.Step();
  const int64_t allocations = device_->memory_use().allocations;
  Sealed("w", 0x22);
  EXPECT_EQ(retired_, 1);
  EXPECT_TRUE(first->retired());
  EXPECT_EQ(FirstByte(*first), std::byte{0x11});
  EXPECT_EQ(FirstByte(**registry_.Resolve("w")), std::byte{0x22});
  EXPECT_TRUE(absl::IsNotFound(registry_.Resolve(first->reference()).status()));
  reclaimer_.Step();
  EXPECT_EQ(device_->memory_use().allocations, allocations + 1);
  first.reset();
  reclaimer_.Step();
  EXPECT_EQ(device_->memory_use().allocations, allocations);

  const int64_t other = *registry_.Begin(Spec("w", {{6, 64}}));
  ASSERT_TRUE(Write("w", other, WeightsOperand::kCodes, 0, 6 * 32, 1).ok());
  ASSERT_TRUE(Write("w", other, WeightsOperand::kScales, 0, 6 * 4, 1).ok());
  EXPECT_THAT(std::string(registry_.Seal("w", other).status().message()),
              HasSubstr("a replacement needs the shapes and scale layout of version"));

  WeightsSpec blocked = Spec("w");
  blocked.scale_layout = ScaleLayout::kBlocked;
  const int64_t other_layout = *registry_.Begin(std::move(blocked));
  ASSERT_TRUE(Write("w", other_layout, WeightsOperand::kCodes, 0, 6 * 32 + 5 * 16, 1).ok());
  ASSERT_TRUE(Write("w", other_layout, WeightsOperand::kScales, 0, 2 * 512, 1).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(registry_.Seal("w", other_layout).status()));
  EXPECT_EQ(FirstByte(**registry_.Resolve("w")), std::byte{0x22});
}

TEST_F(WeightsTest, DropAbandonAndLimitsBalanceToTheByte) {
  Sealed("a", 1);
  const int64_t pending = *registry_.Begin(Spec("a"));
  Sealed("b", 1);
  EXPECT_EQ(registry_.List().size(), 3u);
  const int64_t last = *registry_.Begin(Spec("c"));
  EXPECT_TRUE(absl::IsResourceExhausted(registry_.Begin(Spec("d")).status()));
  registry_.Abandon("c", last);
  registry_.Abandon("c", last);  // once more does nothing
  EXPECT_TRUE(absl::IsNotFound(Write("c", last, WeightsOperand::kCodes, 0, 1, 1)));
  EXPECT_EQ(*registry_.Drop(std::string("a@") + std::to_string(pending)), 1);
  EXPECT_TRUE(registry_.Resolve("a").ok());
  EXPECT_EQ(*registry_.Drop("a"), 1);
  EXPECT_TRUE(absl::IsNotFound(registry_.Drop("a").status()));
  EXPECT_EQ(*registry_.Drop("b"), 1);
  reclaimer_.Step();
  EXPECT_EQ(device_->memory_use().allocated_bytes, 0);
  EXPECT_EQ(registry_.use().bytes, 0);
  EXPECT_EQ(registry_.use().versions, 0);
  // A version number never comes back.
  EXPECT_GT(*registry_.Begin(Spec("a")), last);
}

TEST_F(WeightsTest, OutOfMemoryIsTypedAndLeavesNothing) {
  const auto begun = registry_.Begin(Spec("big", {{1 << 16, 64}}));
  EXPECT_TRUE(absl::IsResourceExhausted(begun.status()));
  EXPECT_THAT(std::string(begun.status().message()), HasSubstr("device memory:"));
  EXPECT_EQ(registry_.use().versions, 0);
}

// Padding may hold anything, in chunks of any cut; every illegal byte outside
// of it is found at the right place.
TEST(ScaleCheckTest, FindsEveryIllegalByteAndClearsPadding) {
  std::mt19937_64 random(3);
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    const std::vector<GroupDims> groups = {{130, 96}, {1, 32}, {128, 64}, {7, 160}};
    const std::vector<int64_t> planes = ScalePlaneOffsets(groups, layout);
    std::vector<std::byte> plane;
    std::vector<size_t> begin;
    for (const auto [n, k] : groups) {
      begin.push_back(plane.size());
      plane.resize(plane.size() + ScalePlaneBytes(layout, n, k), std::byte{0xFF});
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t block = 0; block < k / 16; ++block) {
          plane[begin.back() + ScaleOffset(layout, row, block, k)] = std::byte(random() % 0x7F);
        }
      }
    }
    for (int round = 0; round < 300; ++round) {
      const size_t from = random() % plane.size(), count = 1 + random() % (plane.size() - from);
      std::vector<std::byte> chunk(plane.begin() + from, plane.begin() + from + count);
      const absl::Status checked =
          CheckScales(groups, layout, planes, static_cast<int64_t>(from), chunk);
      ASSERT_TRUE(checked.ok()) << checked;
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(chunk[i], plane[from + i] == std::byte{0xFF} ? std::byte{0} : plane[from + i]);
      }
    }
    for (int round = 0; round < 300; ++round) {
      const size_t g = random() % groups.size();
      const auto [n, k] = groups[g];
      const int64_t row = static_cast<int64_t>(random() % n);
      const int64_t block = static_cast<int64_t>(random() % (k / 16));
      std::vector<std::byte> bad = plane;
      bad[begin[g] + ScaleOffset(layout, row, block, k)] = std::byte(0x7F + random() % 0x81);
      // In the first, a middle or the last byte of a piece, or a piece of its own.
      const size_t at = begin[g] + ScaleOffset(layout, row, block, k);
      const size_t from = random() % 3 == 0 ? at : random() % (at + 1);
      const size_t to = random() % 3 == 0 ? at + 1 : at + 1 + random() % (bad.size() - at);
      const absl::Status refused = CheckScales(groups, layout, planes, static_cast<int64_t>(from),
                                               std::span(bad).subspan(from, to - from));
      ASSERT_TRUE(absl::IsInvalidArgument(refused));
      ASSERT_THAT(std::string(refused.message()),
                  HasSubstr("group " + std::to_string(g) + " row " + std::to_string(row) +
                            " block " + std::to_string(block) + ":"));
    }
  }
}

}  // namespace
}  // namespace tetrad
