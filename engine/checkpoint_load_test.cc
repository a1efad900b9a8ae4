// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint_load.h"

#include <cstring>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/heap_meter.h"
#include "engine/checkpoint/test_files.h"
#include "engine/cpu_device.h"
#include "engine/faulty_device.h"
#include "engine/load_parts.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TestTensor;

// What a checkpoint holds, and what the registry should hold of it.
struct Sample {
  std::vector<TestTensor> tensors;
  std::string pattern, codes, scales;
};

std::string RandomBytes(Random& random, int64_t count) {
  std::string bytes(static_cast<size_t>(RoundUp(count, 8)), '\0');
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random.Next() & 0x7E7E7E7E7E7E7E7Eu;  // legal as scales
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

Sample Experts(uint64_t groups, uint64_t n, uint64_t k) {
  Random random(groups + n + k);
  Sample sample{.pattern = "e.{expert}.up"};
  for (uint64_t g = 0; g < groups; ++g) {
    const std::string name = absl::StrCat("e.", g, ".up.weight");
    const std::string codes = RandomBytes(random, static_cast<int64_t>(n * k / 2));
    const std::string scales = RandomBytes(random, static_cast<int64_t>(n * k / 16));
    sample.tensors.push_back({name, "U8", {n, k / 2}, codes});
    sample.tensors.push_back({name + "_scale", "F8_E4M3", {n, k / 16}, scales});
    sample.tensors.push_back({name + "_scale_2", "F32", {}, testing::F32Bytes({0.5f})});
    sample.codes += codes;
    sample.scales += scales;
  }
  return sample;
}

// Stored [G, K/2, N].
Sample Transposed(uint64_t groups, uint64_t n, uint64_t k) {
  Random random(groups + n + k);
  Sample sample{.pattern = "e.up"};
  const auto stored = [&](uint64_t row_bytes, std::string& turned) {
    std::string bytes = RandomBytes(random, static_cast<int64_t>(groups * n * row_bytes));
    turned.resize(bytes.size());
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t i = 0; i < n * row_bytes; ++i) {
        turned[g * n * row_bytes + i] =
            bytes[g * n * row_bytes + i % row_bytes * n + i / row_bytes];
      }
    }
    return bytes;
  };
  sample.tensors.push_back({"e.up", "U8", {groups, k / 2, n}, stored(k / 2, sample.codes)});
  sample.tensors.push_back(
      {"e.up_weight_scale", "F8_E4M3", {groups, k / 16, n}, stored(k / 16, sample.scales)});
  sample.tensors.push_back({"e.up_weight_scale_2", "F32", {}, testing::F32Bytes({0.5f})});
  return sample;
}

class CheckpointLoadTest : public ::testing::Test {
 protected:
  CheckpointLoadTest()
      : device_(*FaultyDevice::Create(
            [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
              return CpuDevice::Create(
                  {.threads = 1, .memory_bytes = 512 << 20, .measure_rates = false},
                  std::move(wake));
            },
            [] {})),
        pool_(Pool::From(*device_), {}),
        registry_(*device_, pool_, reclaimer_, {}, [] {}),
        root_(*Root::Open(folder_.path().string())) {}

  void Store(const Sample& sample) {
    pattern_ = sample.pattern;
    folder_.Write("model.safetensors", testing::Safetensors(sample.tensors));
  }

  absl::StatusOr<CheckpointWeights> Load(int threads, LoadObserver observe) {
    std::vector<std::jthread> helpers;
    const LoadTeam team{threads - 1, [&](absl::AnyInvocable<void()>&& job) {
                          helpers.emplace_back(std::move(job));
                          return true;
                        }};
    return LoadCheckpoint(root_, {.directory = "", .pattern = pattern_}, "w", registry_, team,
                          observe);
  }
  absl::StatusOr<CheckpointWeights> Load(int threads) {
    return Load(threads, [](int64_t, int64_t) { return true; });
  }

  std::string Operand(const BlockRef& block) {
    std::string bytes(static_cast<size_t>(block.bytes), '\0');
    EXPECT_TRUE(device_
                    ->Read(block.allocation, block.offset,
                           std::as_writable_bytes(std::span(bytes.data(), bytes.size())))
                    .ok());
    return bytes;
  }

  void ExpectLoaded(const Sample& sample) {
    const auto weights = registry_.Resolve("w");
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_TRUE(Operand((*weights)->codes()) == sample.codes);
    EXPECT_TRUE(Operand((*weights)->scales()) == sample.scales);
  }

  void ExpectNothingHeld() {
    reclaimer_.Step();
    EXPECT_EQ(device_->memory_use().allocations, 0);
    EXPECT_EQ(registry_.use().versions, 0);
  }

  const std::unique_ptr<FaultyDevice> device_;
  Pool pool_;
  Reclaimer reclaimer_{[] {}};
  WeightsRegistry registry_;
  const TempFolder folder_;
  const Root root_;
  std::string pattern_;
};

TEST_F(CheckpointLoadTest, AnyThreadsAndPiecesGiveTheSameBytes) {
  // Groups of less than a piece, of some, and of more than a part (16 MiB).
  const Sample samples[] = {Experts(500, 3, 32), Experts(3, 700, 1024), Experts(1, 4500, 8192),
                            Transposed(3, 130, 96), Transposed(1, 4500, 8192)};
  for (const Sample& sample : samples) {
    Store(sample);
    for (const int threads : {1, 2, 5}) {
      for (const int64_t piece : {int64_t{0}, int64_t{4} << 20, int64_t{77'777}, int64_t{997}}) {
        // Small pieces of large groups take long and show nothing new.
        if (piece == 997 && sample.codes.size() > (4 << 20)) continue;
        if (piece == 77'777 && threads == 1) continue;
        SCOPED_TRACE(absl::StrCat(sample.codes.size(), " threads ", threads, " piece ", piece));
        device_->FillInPieces(piece);
        const auto loaded = Load(threads);
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        ExpectLoaded(sample);
        ASSERT_TRUE(registry_.Drop("w").ok());
        ExpectNothingHeld();
      }
    }
  }
}

TEST_F(CheckpointLoadTest, SmallGroupsShareACallOfTheDevice) {
  const Sample sample = Experts(5'000, 2, 32);
  Store(sample);
  ASSERT_TRUE(Load(2).ok());
  EXPECT_EQ(device_->calls(Call::kWrite), 2);
  ExpectLoaded(sample);
}

TEST_F(CheckpointLoadTest, HostMemoryDoesNotGrowWithAGroup) {
  Store(Experts(1, 16'384, 8'192));  // 64 MiB of codes
  const testing::HeapMeter meter;
  ASSERT_TRUE(Load(3).ok());
  EXPECT_LT(meter.peak(), size_t{1} << 20);
}

// Bad scales at many places: the first counts, whoever comes upon which when.
TEST_F(CheckpointLoadTest, TheFirstErrorByPlaceWins) {
  Sample sample = Experts(40, 300, 4'096);
  for (const int group : {7, 8, 9, 23, 39}) {
    std::string& scales = sample.tensors[static_cast<size_t>(3 * group + 1)].bytes;
    for (size_t at = 5'000; at < scales.size(); at += 10'000) scales[at] = '\x7F';
  }
  Store(sample);
  std::string message;
  for (int round = 0; round < 20; ++round) {
    device_->FillInPieces(round % 2 == 0 ? 0 : 33'333);
    const absl::Status status = Load(1 + round % 5).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("tensor `e.7.up.weight_scale` (F8_E4M3 [300, 256]): group 7 row 19 block "
                          "136: scale byte 7f is NaN"));
    ExpectNothingHeld();
  }
}

TEST_F(CheckpointLoadTest, AFailingDeviceEndsTheLoad) {
  Store(Experts(3, 5'000, 8'192));  // two parts a group, and one of scales
  for (const int threads : {1, 4}) {
    for (int64_t n = 1;; ++n) {
      device_->FailNth(Call::kWrite, n, absl::InternalError("injected"));
      const absl::Status status = Load(threads).status();
      if (!device_->fault_fired()) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      EXPECT_EQ(status, absl::InternalError("injected"));
      ExpectNothingHeld();
    }
    device_->StopFailing();
    ASSERT_TRUE(registry_.Drop("w").ok());
  }
}

TEST_F(CheckpointLoadTest, ProgressIsMonotoneAndCanStopTheLoad) {
  const Sample sample = Experts(4, 5'000, 8'192);
  Store(sample);
  const auto caller = std::this_thread::get_id();
  const auto want = static_cast<int64_t>(sample.codes.size() + sample.scales.size());
  for (const int threads : {1, 3}) {
    int64_t last = 0, calls = 0;
    ASSERT_TRUE(Load(threads, [&](int64_t done, int64_t total) {
                  EXPECT_EQ(std::this_thread::get_id(), caller);
                  EXPECT_EQ(total, want);
                  EXPECT_GE(done, last);
                  last = done;
                  ++calls;
                  return true;
                }).ok());
    EXPECT_EQ(last, want);
    ASSERT_TRUE(registry_.Drop("w").ok());
    for (int64_t stop_at = 1; stop_at <= 2; ++stop_at) {
      int64_t seen = 0;
      const absl::Status stopped =
          Load(threads, [&](int64_t, int64_t) { return ++seen < stop_at; }).status();
      EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
      EXPECT_EQ(stopped.message(), "the load was stopped");
      ExpectNothingHeld();
    }
  }
}

// Helpers may be refused, or come when the load is over.
TEST_F(CheckpointLoadTest, HelpersAreNotNeeded) {
  const Sample sample = Experts(3, 700, 1'024);
  Store(sample);
  std::vector<absl::AnyInvocable<void()>> late;
  int asked = 0;
  const LoadTeam team{4, [&](absl::AnyInvocable<void()>&& job) {
                        if (++asked == 3) return false;
                        late.push_back(std::move(job));
                        return true;
                      }};
  ASSERT_TRUE(LoadCheckpoint(root_, {.directory = "", .pattern = pattern_}, "w", registry_, team,
                             [](int64_t, int64_t) { return true; })
                  .ok());
  EXPECT_EQ(asked, 3);
  ExpectLoaded(sample);
  for (auto& job : late) job();
  ExpectLoaded(sample);
}

TEST_F(CheckpointLoadTest, DroppedMeanwhileIsNotFound) {
  Store(Experts(4, 5'000, 8'192));
  bool dropped = false;
  const absl::Status status = Load(1, [&](int64_t done, int64_t) {
                                if (done > 0 && !dropped) dropped = registry_.Drop("w").ok();
                                return true;
                              }).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  ExpectNothingHeld();
}

TEST(LoadPartsTest, CoverEveryByteOnceInOrderOfPlace) {
  for (const int64_t groups : {1, 2, 7, 100}) {
    for (const int64_t scales : {1, 2, 5, 40}) {
      for (const int64_t part_bytes : {1, 7, 64, 1'000}) {
        const LoadParts parts(groups, 8 * scales, scales, part_bytes);
        std::map<WeightsOperand, int64_t> end;
        LoadPlace last{-1};
        for (int64_t i = 0; i < parts.size(); ++i) {
          const LoadParts::Part part = parts[i];
          ASSERT_GT(part.bytes, 0);
          ASSERT_LE(part.bytes, std::max(part_bytes, 8 * scales));
          ASSERT_EQ(part.offset, end[part.operand]);
          end[part.operand] += part.bytes;
          const LoadPlace place = parts.PlaceOf(part.operand, part.offset);
          ASSERT_LT(last, place);
          last = place;
        }
        ASSERT_EQ(end[WeightsOperand::kCodes], groups * 8 * scales);
        ASSERT_EQ(end[WeightsOperand::kScales], groups * scales);
      }
    }
  }
}

}  // namespace
}  // namespace tetrad
