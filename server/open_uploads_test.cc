// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/open_uploads.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/support/error_detail.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kCodes = 2 * 64 * 64 / 2;  // two groups of 64 x 64
constexpr int64_t kScales = 2 * 64 * 64 / 16;

Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail.has_value() ? detail->reason : Reason::kInternal;
}

// The byte that belongs at a place of an operand; legal as a scale.
std::byte At(WeightsOperand operand, int64_t offset) {
  return std::byte((offset * 7 + offset / 251 + static_cast<int64_t>(operand)) % 0x7F);
}

class OpenUploadsTest : public ::testing::Test {
 protected:
  OpenUploadsTest()
      : device_(*CpuDevice::Create({.threads = 1, .memory_bytes = 8 << 20, .measure_rates = false},
                                   [] {})),
        pool_(Pool::From(*device_), {}),
        registry_(*device_, pool_, reclaimer_, {}, [] {}) {}

  absl::StatusOr<OpenUploads::Attached> Attach(const std::string& client = "a",
                                               const std::string& key = "k",
                                               const std::string& header = "h",
                                               std::function<void()> taken_over = nullptr) {
    return uploads_.Attach({client, "w", key}, header,
                           {.name = "w", .groups = {{64, 64}, {64, 64}}}, std::move(taken_over),
                           now_);
  }
  OpenUploads::Hold Hold() {
    const auto attached = Attach();
    EXPECT_TRUE(attached.ok()) << attached.status();
    EXPECT_FALSE(attached->answer.has_value());
    return attached->hold;
  }
  absl::Status Write(const OpenUploads::Hold& hold, WeightsOperand operand, int64_t offset,
                     int64_t bytes) {
    std::vector<std::byte> data;
    for (int64_t i = offset; i < offset + bytes; ++i) data.push_back(At(operand, i));
    return uploads_.Write(hold, operand, offset, data);
  }
  void WriteAll(const OpenUploads::Hold& hold) {
    ASSERT_TRUE(Write(hold, WeightsOperand::kCodes, 0, kCodes).ok());
    ASSERT_TRUE(Write(hold, WeightsOperand::kScales, 0, kScales).ok());
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
  int64_t Allocations() {
    reclaimer_.Step();
    return device_->memory_use().allocations;
  }

  std::unique_ptr<Device> device_;
  Pool pool_;
  Reclaimer reclaimer_{[] {}};
  WeightsRegistry registry_;
  OpenUploads uploads_{registry_,
                       {.keep = absl::Seconds(10),
                        .uploads = 3,
                        .client_uploads = 2,
                        .client_answers = 2,
                        .answer_bytes = 1 << 20}};
  Instant now_ = kSecond;
};

TEST_F(OpenUploadsTest, GoesOnWithWhatIsMissing) {
  const auto first = Hold();
  ASSERT_TRUE(Write(first, WeightsOperand::kCodes, 0, 100).ok());
  ASSERT_TRUE(Write(first, WeightsOperand::kCodes, 200, 50).ok());
  uploads_.Detach(first, true, now_);
  const auto kept = uploads_.Get({"a", "w", "k"});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_FALSE(kept->has_weights());
  ASSERT_EQ(kept->missing_codes_size(), 2);
  EXPECT_EQ(kept->missing_codes(0).offset(), 100);
  EXPECT_EQ(kept->missing_codes(0).bytes(), 100);
  EXPECT_EQ(kept->missing_codes(1).offset(), 250);
  EXPECT_EQ(kept->missing_codes(1).bytes(), kCodes - 250);
  ASSERT_EQ(kept->missing_scales_size(), 1);
  EXPECT_EQ(kept->missing_scales(0).bytes(), kScales);

  const auto second = Hold();
  EXPECT_TRUE(absl::IsFailedPrecondition(uploads_.Complete(second, true, now_).status()));
  EXPECT_EQ(ReasonOf(uploads_.Complete(second, false, now_).status()), Reason::kWeightsIncomplete);
  WriteAll(second);  // some of it again
  const auto info = uploads_.Complete(second, true, now_);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, kept->version());
  ExpectContent();
}

TEST_F(OpenUploadsTest, TheAnswerIsKeptAndNothingIsUploadedTwice) {
  const auto hold = Hold();
  WriteAll(hold);
  const auto info = uploads_.Complete(hold, true, now_);
  ASSERT_TRUE(info.ok()) << info.status();
  uploads_.Detach(hold, false, now_);  // too late to mean anything
  const auto again = Attach();
  ASSERT_TRUE(again.ok() && again->answer.has_value()) << again.status();
  EXPECT_EQ(again->answer->version(), info->version);
  EXPECT_TRUE(again->answer->sealed());
  EXPECT_EQ(uploads_.Get({"a", "w", "k"})->weights().version(), info->version);
  EXPECT_EQ(registry_.use().versions, 1);
  EXPECT_EQ(uploads_.Step(now_), now_ + 10 * kSecond);
  EXPECT_EQ(uploads_.Step(now_ + 10 * kSecond), kNever);
  EXPECT_EQ(ReasonOf(uploads_.Get({"a", "w", "k"}).status()), Reason::kUploadNotFound);
  EXPECT_TRUE(registry_.Resolve("w").ok()) << "the weights stay";
}

TEST_F(OpenUploadsTest, ExpiryAbandonsWhatNoStreamHas) {
  const auto hold = Hold();
  EXPECT_EQ(uploads_.Step(now_ + 100 * kSecond), kNever) << "a stream has it";
  uploads_.Detach(hold, true, now_);
  EXPECT_EQ(uploads_.Step(now_ + 10 * kSecond - 1), now_ + 10 * kSecond);
  EXPECT_EQ(Allocations(), 1);
  EXPECT_EQ(uploads_.Step(now_ + 10 * kSecond), kNever);
  EXPECT_EQ(Allocations(), 0);
  EXPECT_EQ(registry_.use().versions, 0);
  EXPECT_EQ(uploads_.use().uploads, 0);
}

TEST_F(OpenUploadsTest, OthersSeeNothing) {
  const auto hold = Hold();
  ASSERT_TRUE(Write(hold, WeightsOperand::kCodes, 0, 100).ok());
  EXPECT_EQ(ReasonOf(uploads_.Get({"b", "w", "k"}).status()), Reason::kUploadNotFound);
  EXPECT_EQ(ReasonOf(uploads_.Get({"a", "w", "other"}).status()), Reason::kUploadNotFound);
  const auto theirs = Attach("b");
  ASSERT_TRUE(theirs.ok());
  EXPECT_NE(uploads_.Get({"b", "w", "k"})->version(), uploads_.Get({"a", "w", "k"})->version());
  EXPECT_EQ(uploads_.Get({"b", "w", "k"})->missing_codes(0).offset(), 0);
  EXPECT_TRUE(Write(hold, WeightsOperand::kCodes, 100, 100).ok());
}

TEST_F(OpenUploadsTest, AnotherHeaderIsRefusedAndChangesNothing) {
  bool taken_over = false;
  const auto attached = Attach("a", "k", "h", [&taken_over] { taken_over = true; });
  EXPECT_EQ(ReasonOf(Attach("a", "k", "other").status()), Reason::kKeyReused);
  EXPECT_FALSE(taken_over);
  WriteAll(attached->hold);
  ASSERT_TRUE(uploads_.Complete(attached->hold, true, now_).ok());
  EXPECT_EQ(ReasonOf(Attach("a", "k", "other").status()), Reason::kKeyReused);
}

TEST_F(OpenUploadsTest, TheNewerStreamTakesOver) {
  int taken_over = 0;
  const auto older = Attach("a", "k", "h", [&taken_over] { ++taken_over; });
  const auto newer = Hold();
  EXPECT_EQ(taken_over, 1);
  EXPECT_EQ(ReasonOf(Write(older->hold, WeightsOperand::kCodes, 0, 10)), Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(uploads_.Complete(older->hold, true, now_).status()), Reason::kTakenOver);
  EXPECT_EQ(uploads_.Get({"a", "w", "k"})->missing_codes(0).offset(), 0);
  uploads_.Detach(older->hold, false, now_);
  WriteAll(newer);
  ASSERT_TRUE(uploads_.Complete(newer, true, now_).ok());
  ExpectContent();
}

TEST_F(OpenUploadsTest, WhatCannotBeHelpedIsForgotten) {
  const auto hold = Hold();
  uploads_.Detach(hold, false, now_);
  EXPECT_EQ(Allocations(), 0);
  EXPECT_TRUE(absl::IsNotFound(uploads_.Get({"a", "w", "k"}).status()));
  // A version that cannot be begun leaves no upload either.
  const auto none = uploads_.Attach({"a", "w", "k"}, "h", {.name = "w"}, nullptr, now_);
  EXPECT_TRUE(absl::IsInvalidArgument(none.status()));
  EXPECT_EQ(uploads_.use().uploads, 0);
}

TEST_F(OpenUploadsTest, DroppedOrSealedByNameMeanwhile) {
  const auto hold = Hold();
  uploads_.Detach(hold, true, now_);
  ASSERT_TRUE(registry_.Drop("w").ok());
  EXPECT_EQ(ReasonOf(uploads_.Get({"a", "w", "k"}).status()), Reason::kUploadNotFound);
  EXPECT_EQ(ReasonOf(Attach().status()), Reason::kStaleHandle);
  const auto anew = Hold();
  WriteAll(anew);
  uploads_.Detach(anew, true, now_);
  const int64_t version = uploads_.Get({"a", "w", "k"})->version();
  ASSERT_TRUE(registry_.Seal("w", version).ok());
  EXPECT_TRUE(uploads_.Get({"a", "w", "k"})->weights().sealed());
  const auto sealed = Attach();
  ASSERT_TRUE(sealed.ok() && sealed->answer.has_value()) << sealed.status();
  EXPECT_EQ(sealed->answer->version(), version);
}

TEST_F(OpenUploadsTest, BoundedForAClientAndInAll) {
  ASSERT_TRUE(Attach("a", "1").ok());
  const auto second = Attach("a", "2");
  ASSERT_TRUE(second.ok());
  uploads_.Detach(second->hold, true, now_);
  EXPECT_EQ(ReasonOf(Attach("a", "3").status()), Reason::kQuota) << "kept ones count";
  ASSERT_TRUE(Attach("b", "1").ok());
  EXPECT_EQ(ReasonOf(Attach("c", "1").status()), Reason::kTableFull);
  EXPECT_TRUE(Attach("a", "2").ok()) << "to go on takes no room";
}

TEST_F(OpenUploadsTest, OldAnswersMakeRoom) {
  for (const char* key : {"1", "2", "3"}) {
    now_ += kSecond;
    const auto attached = Attach("a", key);
    ASSERT_TRUE(attached.ok()) << attached.status();
    WriteAll(attached->hold);
    ASSERT_TRUE(uploads_.Complete(attached->hold, true, now_).ok());
  }
  EXPECT_EQ(uploads_.use().answers, 2);
  EXPECT_FALSE(uploads_.Get({"a", "w", "1"}).ok());
  EXPECT_TRUE(uploads_.Get({"a", "w", "3"}).ok());
}

// Streams that break at any place and overlap in time, against a table of bytes: what
// is not said to be missing was written, the end has every byte, nothing is left.
TEST_F(OpenUploadsTest, AnyOrderOfBreaksAgreesWithATableOfBytes) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    std::vector<bool> written(kCodes, false);
    std::vector<OpenUploads::Hold> holds;
    ASSERT_TRUE(registry_.use().versions <= 1);
    bool complete = false;
    while (!complete) {
      if (holds.empty() || random.OneIn(6)) {
        holds.push_back(Hold());
        ASSERT_TRUE(Write(holds.back(), WeightsOperand::kScales, 0, kScales).ok());
      }
      // Mostly the newest: the others only try what they must not be able to do.
      const auto& hold =
          random.OneIn(3) ? holds[random.Below(static_cast<uint32_t>(holds.size()))] : holds.back();
      const bool newest = hold.number == holds.back().number;
      const int64_t offset = random.Below(kCodes);
      const int64_t bytes = std::min<int64_t>(1 + random.Below(700), kCodes - offset);
      const absl::Status status = Write(hold, WeightsOperand::kCodes, offset, bytes);
      ASSERT_EQ(status.ok(), newest) << status;
      if (newest) std::fill_n(written.begin() + offset, bytes, true);
      const auto kept = uploads_.Get({"a", "w", "k"});
      ASSERT_TRUE(kept.ok());
      std::vector<bool> told(kCodes, true);
      for (const auto& range : kept->missing_codes()) {
        std::fill_n(told.begin() + range.offset(), range.bytes(), false);
      }
      ASSERT_EQ(told, written);
      const bool all = std::ranges::all_of(written, [](bool w) { return w; });
      if (random.OneIn(5)) {
        complete = uploads_.Complete(hold, true, now_).ok();
        ASSERT_EQ(complete, newest && all);
      } else if (random.OneIn(6)) {
        uploads_.Detach(hold, true, now_);
        if (newest) holds.clear();
      }
    }
    ExpectContent();
    uploads_.Step(now_ += 100 * kSecond);
    ASSERT_EQ(uploads_.use().answers, 0);
    ASSERT_TRUE(registry_.Drop("w").ok());
    ASSERT_EQ(Allocations(), 0);
  }
}

// Several threads go on with one upload; the thread sanitizer watches.
TEST_F(OpenUploadsTest, ManyStreamsAtOnce) {
  std::vector<std::jthread> threads;
  std::atomic<int> answered = 0;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      for (;;) {
        const auto attached = Attach();
        ASSERT_TRUE(attached.ok() || ReasonOf(attached.status()) == Reason::kTakenOver);
        if (!attached.ok()) continue;
        if (attached->answer.has_value()) break;
        absl::Status status = Write(attached->hold, WeightsOperand::kScales, 0, kScales);
        for (int64_t at = 0; status.ok() && at < kCodes; at += 256) {
          status = Write(attached->hold, WeightsOperand::kCodes, at, 256);
        }
        if (status.ok()) status = uploads_.Complete(attached->hold, true, now_).status();
        ASSERT_TRUE(status.ok() || ReasonOf(status) == Reason::kTakenOver) << status;
        uploads_.Detach(attached->hold, true, now_);
        std::this_thread::yield();
      }
      ++answered;
    });
  }
  threads.clear();
  EXPECT_EQ(answered, 4);
  ExpectContent();
  EXPECT_EQ(registry_.use().versions, 1);
}

}  // namespace
}  // namespace tetrad
