// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA device does with graphs, proofs and tables of plans, that it
// notices what ends a launch, and that copies do not hold each other up.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "engine/cuda/simulated_device.h"

namespace tetrad::cuda {
namespace {

using Code = absl::StatusCode;
using ::testing::HasSubstr;

constexpr int64_t kGraphBytes = 64 << 10;  // SimulatedHardware::graph_exec_bytes

DeviceSampleOptions Seeded(uint64_t seed, ActivationType type = ActivationType::kNvfp4) {
  return {.sample = {.types = {.a_type = type}, .seed = seed}};
}

class CudaDeviceGraphsTest : public ::testing::Test {
 protected:
  explicit CudaDeviceGraphsTest(
      const CudaDevice::Options& options = SimulatedDevice::SmallOptions())
      : simulated(options) {
    EXPECT_TRUE(simulated.Create().ok());
  }
  CudaDevice& device() { return *simulated.device; }
  BindingId Bind(const DeviceSample& sample) {
    const auto binding = device().Bind(sample.plan(), sample.blocks());
    EXPECT_TRUE(binding.ok()) << binding.status();
    return binding.ok() ? *binding : BindingId::kNone;
  }
  void RunOnce(BindingId binding) {
    const absl::Status launched = device().Launch(LaneId{0}, binding, 1);
    ASSERT_TRUE(launched.ok()) << launched;
    Completion completion;
    ASSERT_TRUE(simulated.Wait(&completion));
  }

  SimulatedDevice simulated;
};

TEST_F(CudaDeviceGraphsTest, AFaultOfALaunchIsNoticedSoon) {
  DeviceSample sample(device(), {{5, 48, 96}});
  const BindingId binding = Bind(sample);
  const uint64_t wakes = simulated.wakes->count();
  simulated.driver.BreakAtWork(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(device().Launch(LaneId{1}, binding, 1).ok());
  ASSERT_TRUE(simulated.wakes->WaitBeyond(wakes));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(device().health().code(), Code::kInternal);
  EXPECT_THAT(Text(device().health()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(device().Launch(LaneId{0}, binding, 2), device().health());
  Completion none;
  EXPECT_EQ(device().Poll({&none, 1}), 0u);
}

// The poller asks whether work is over. Nothing is given back, though the context lives.
TEST_F(CudaDeviceGraphsTest, AQuestionThatFailsEndsTheDevice) {
  DeviceSample sample(device(), {{5, 48, 96}});
  const BindingId binding = Bind(sample);
  const uint64_t wakes = simulated.wakes->count();
  simulated.driver.Hold();
  simulated.driver.FailNth(EntryPoint::kStreamQuery, 0, CUDA_ERROR_INVALID_VALUE);
  ASSERT_TRUE(device().Launch(LaneId{1}, binding, 1).ok());
  EXPECT_TRUE(simulated.wakes->WaitBeyond(wakes));
  simulated.driver.Resume();
  EXPECT_EQ(device().health().code(), Code::kInternal);
  EXPECT_THAT(Text(device().health()), HasSubstr("cuStreamQuery: CUDA_ERROR_INVALID_VALUE"));
}

// Nobody has to launch anything more to notice, and destruction does not wait for
// what never ends.
TEST_F(CudaDeviceGraphsTest, ADeviceLostUnderManyLaunchesEnds) {
  DeviceSample sample(device(), {{5, 48, 96}});
  const BindingId binding = Bind(sample);
  simulated.driver.BreakAtWork(3, CUDA_ERROR_LAUNCH_FAILED);
  for (uint64_t i = 0; i < 8; ++i) {
    const absl::Status status = device().Launch(LaneId{i % 2 == 0 ? 0u : 1u}, binding, i);
    ASSERT_TRUE(status.ok() || absl::IsInternal(status)) << status;
  }
  while (device().health().ok()) std::this_thread::yield();
  EXPECT_EQ(device().health().code(), Code::kInternal);
}

TEST_F(CudaDeviceGraphsTest, TensorMapsOfLiveBindingsAreCounted) {
  DeviceSample sample(device(), {{5, 48, 96}});
  EXPECT_EQ(device().execution_use().tensor_maps, 0);
  const BindingId one = Bind(sample);
  const int64_t of_one = device().execution_use().tensor_maps;
  EXPECT_GE(of_one, 1);
  EXPECT_LE(of_one, sm90::kMaxWidths);
  const BindingId two = Bind(sample);
  ASSERT_TRUE(device().Rebind(two, sample.blocks()).ok());
  EXPECT_EQ(device().execution_use().tensor_maps, 2 * of_one);
  ASSERT_TRUE(device().Unbind(one).ok());
  EXPECT_EQ(device().execution_use().tensor_maps, of_one);
  ASSERT_TRUE(device().Unbind(two).ok());
  EXPECT_EQ(device().execution_use().tensor_maps, 0);
}

// Whoever rewrites counts while a launch reads them gets rows of its own activations or none,
// never what an earlier launch of the binding left prepared.
TEST_F(CudaDeviceGraphsTest, RewrittenCountsDoNotShowEarlierActivations) {
  constexpr int32_t kRows = 8;
  DeviceSample sample(device(), {{kRows, 16, 64}, {kRows, 16, 64}},
                      {.sample = {.form = GroupForm::kStacked}, .m_source = MSource::kCounts});
  const std::vector<int32_t> all(2, kRows), none(2, 0);
  const BlockRef& a = sample.blocks().a;
  const BlockRef& c = sample.blocks().c;
  std::vector<std::byte> first(static_cast<size_t>(a.bytes)), output(static_cast<size_t>(c.bytes));
  ASSERT_TRUE(device().Read(a.allocation, a.offset, first).ok());
  const std::vector<std::byte> zeros(first.size());
  const BindingId binding = Bind(sample);
  Completion completion;
  for (uint64_t round = 1; round <= 200; ++round) {
    ASSERT_TRUE(device().Write(a.allocation, a.offset, first).ok());
    sample.SetMValues(all);
    ASSERT_TRUE(device().Launch(LaneId{0}, binding, round).ok());
    ASSERT_TRUE(simulated.Wait(&completion));
    ASSERT_TRUE(device().Write(a.allocation, a.offset, zeros).ok());
    ASSERT_TRUE(device().Clear(c.allocation, c.offset, c.bytes).ok());
    sample.SetMValues(none);
    std::atomic<bool> over = false;
    std::thread rewriter([&] {
      while (!over) {
        sample.SetMValues(all);
        sample.SetMValues(none);
      }
    });
    const absl::Status launched = device().Launch(LaneId{0}, binding, round);
    const bool came = launched.ok() && simulated.Wait(&completion);
    over = true;
    rewriter.join();
    ASSERT_TRUE(came) << launched;
    ASSERT_TRUE(device().Read(c.allocation, c.offset, output).ok());
    for (size_t i = 1; i < output.size(); i += 2) {
      ASSERT_TRUE(output[i - 1] == std::byte{0} && (output[i] & std::byte{0x7F}) == std::byte{0})
          << "round " << round << ": FP16 number " << i / 2 << " is of activations that are gone";
    }
  }
  ASSERT_TRUE(device().Unbind(binding).ok());
}

TEST_F(CudaDeviceGraphsTest, APlanWhoseReplaysAreWrongIsRefused) {
  DeviceSample sample(device(), {{5, 48, 96}});
  simulated.driver.CorruptReplays(true);
  const OperandBlocks& blocks = sample.blocks();
  for (int times = 0; times < 2; ++times) {
    const absl::Status refused = device().MakeReady(sample.plan(), blocks.b, blocks.b_scales);
    EXPECT_EQ(refused.code(), Code::kDataLoss) << refused;
    EXPECT_THAT(Text(refused), HasSubstr("replay proof: 1 of "));
    EXPECT_EQ(device().Bind(sample.plan(), blocks).status().code(), Code::kDataLoss);
  }
  EXPECT_EQ(device().execution_use().plans, 0);
  EXPECT_EQ(device().execution_use().proofs, 0);
  simulated.ExpectAccounted();
  EXPECT_TRUE(sample.FreeAll()) << "a refused plan holds nothing";
  simulated.driver.CorruptReplays(false);
  DeviceSample healed(device(), {{5, 48, 96}});
  RunOnce(Bind(healed));
  EXPECT_TRUE(healed.Correct());
}

CudaDevice::Options ThreeGraphs() {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  options.graph_bytes = 3 * kGraphBytes;
  return options;
}
class CudaDeviceFewGraphsTest : public CudaDeviceGraphsTest {
 protected:
  CudaDeviceFewGraphsTest() : CudaDeviceGraphsTest(ThreeGraphs()) {}
};

TEST_F(CudaDeviceFewGraphsTest, IdleGraphsGiveWayAndUsedOnesDoNot) {
  DeviceSample nvfp4(device(), {{5, 48, 96}});
  DeviceSample fp16(device(), {{5, 48, 96}}, Seeded(2, ActivationType::kFp16));
  std::vector<BindingId> bindings;
  for (int i = 0; i < 3; ++i) bindings.push_back(Bind(nvfp4));
  EXPECT_EQ(device().execution_use().graphs, 3);
  EXPECT_EQ(device().execution_use().graph_bytes, 3 * kGraphBytes);
  for (const DeviceSample* sample : {&nvfp4, &fp16}) {
    const absl::Status refused = device().Bind(sample->plan(), sample->blocks()).status();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
    EXPECT_THAT(Text(refused), HasSubstr("graph_bytes: "));
  }
  ASSERT_TRUE(device().Unbind(bindings.back()).ok());
  EXPECT_EQ(device().execution_use().graphs, 3) << "kept for the next";
  bindings.back() = Bind(fp16);
  EXPECT_EQ(device().execution_use().graphs, 3);
  EXPECT_EQ(simulated.driver.counts().graph_execs, 3);
  simulated.ExpectAccounted();
  RunOnce(bindings.back());
  EXPECT_TRUE(fp16.Correct());
  RunOnce(bindings.front());
  EXPECT_TRUE(nvfp4.Correct());
}

TEST_F(CudaDeviceGraphsTest, NothingIsCapturedInSteadyState) {
  constexpr size_t kPlans = 8, kOutputs = 3;
  std::vector<std::unique_ptr<DeviceSample>> samples;
  for (size_t i = 0; i < kPlans; ++i) {
    const int32_t m = static_cast<int32_t>(i) + 1;
    const auto type = static_cast<ActivationType>(i % 3);
    samples.push_back(std::make_unique<DeviceSample>(device(), std::vector<GroupShape>{{m, 48, 96}},
                                                     Seeded(i, type)));
  }
  // Each binding goes around among outputs; every other round it is bound anew.
  std::vector<std::vector<BlockRef>> outputs(kPlans);
  for (size_t i = 0; i < kPlans; ++i) {
    outputs[i].push_back(samples[i]->blocks().c);
    while (outputs[i].size() < kOutputs) {
      const Allocation more = *device().Allocate(outputs[i][0].bytes);
      outputs[i].push_back({more.id, 0, outputs[i][0].bytes});
    }
  }
  std::vector<BindingId> bindings;
  for (const auto& sample : samples) bindings.push_back(Bind(*sample));
  const ExecutionUse before = device().execution_use();
  const DriverCounts counts = simulated.driver.counts();
  const auto captures = [&] {
    return simulated.driver.calls(EntryPoint::kStreamBeginCapture) +
           simulated.driver.calls(EntryPoint::kGraphInstantiate);
  };
  const int64_t captured = captures();
  for (size_t round = 0; round < 12; ++round) {
    for (size_t i = 0; i < kPlans; ++i) {
      OperandBlocks blocks = samples[i]->blocks();
      blocks.c = outputs[i][(round + i) % kOutputs];
      if (round % 4 == 3) {
        ASSERT_TRUE(device().Unbind(bindings[i]).ok());
        bindings[i] = *device().Bind(samples[i]->plan(), blocks);
      } else {
        ASSERT_TRUE(device().Rebind(bindings[i], blocks).ok());
      }
      RunOnce(bindings[i]);
    }
  }
  for (size_t i = 0; i < kPlans; ++i) {
    EXPECT_TRUE(samples[i]->Correct());
    const auto bytes = static_cast<size_t>(outputs[i][0].bytes);
    std::vector<std::byte> first(bytes), other(bytes);
    ASSERT_TRUE(device().Read(outputs[i][0].allocation, outputs[i][0].offset, first).ok());
    for (size_t j = 1; j < kOutputs; ++j) {
      ASSERT_TRUE(device().Read(outputs[i][j].allocation, 0, other).ok());
      EXPECT_EQ(first, other) << "plan " << i << ", output " << j;
    }
  }
  EXPECT_EQ(device().execution_use().captures, before.captures);
  EXPECT_EQ(device().execution_use().proofs, static_cast<int64_t>(kPlans));
  EXPECT_EQ(captures(), captured);
  EXPECT_EQ(simulated.driver.counts(), counts);
}

CudaDevice::Options OneChunkOfTables() {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  options.plan_bytes = 8 << 20;
  options.portable_only = true;  // whose tables are as large as its groups are many
  return options;
}
class CudaDeviceTablesTest : public CudaDeviceGraphsTest {
 protected:
  CudaDeviceTablesTest() : CudaDeviceGraphsTest(OneChunkOfTables()) {}
};

TEST_F(CudaDeviceTablesTest, TablesOfAPlanGoWithIt) {
  // The memory for tables holds less than forty such plans at a time.
  const std::vector<GroupShape> shapes(2500, {1, 8, 32});
  DeviceSample sample(device(), shapes,
                      {.sample = {.kind = DataKind::kContest, .form = GroupForm::kStacked}});
  for (int i = 0; i < 60; ++i) {
    const auto plan = std::make_shared<const Plan>(*sample.plan());
    const absl::Status ready =
        device().MakeReady(plan, sample.blocks().b, sample.blocks().b_scales);
    ASSERT_TRUE(ready.ok()) << ready << " of plan " << i;
    if (i == 0) {
      EXPECT_EQ(device().execution_use().plans, 1);
    }
  }
  EXPECT_EQ(device().execution_use().plans, 0);
  EXPECT_EQ(device().execution_use().proofs, 60);
}

TEST_F(CudaDeviceTablesTest, TablesOfPlansThatAreGoneAreNotLacking) {
  const std::vector<GroupShape> shapes(2500, {1, 8, 32});
  DeviceSample sample(device(), shapes,
                      {.sample = {.kind = DataKind::kContest, .form = GroupForm::kStacked}});
  const auto make_ready = [&](const std::shared_ptr<const Plan>& plan) {
    return device().MakeReady(plan, sample.blocks().b, sample.blocks().b_scales);
  };
  std::vector<std::shared_ptr<const Plan>> plans;
  absl::Status ready;
  while (ready.ok() && plans.size() < 60) {
    plans.push_back(std::make_shared<const Plan>(*sample.plan()));
    ready = make_ready(plans.back());
  }
  ASSERT_EQ(ready.code(), Code::kResourceExhausted) << ready;
  plans.clear();
  ready = make_ready(sample.plan());
  EXPECT_TRUE(ready.ok()) << ready;
}

CudaDevice::Options EightCopies() {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  options.copy_slots = 8;
  return options;
}
class CudaDeviceCopiesTest : public CudaDeviceGraphsTest {
 protected:
  CudaDeviceCopiesTest() : CudaDeviceGraphsTest(EightCopies()) {}
};

// All wait for their source; those that are let in are three quarters.
TEST_F(CudaDeviceCopiesTest, LargeCopiesLeaveAQuarterOfTheSlotsToOthers) {
  constexpr int64_t kLarge = 1 << 20;
  constexpr int kSlots = 8, kLeft = 2;
  const Allocation memory = *device().Allocate((kSlots + kLeft) * kLarge);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  const auto copy = [&](int i, int64_t bytes) {
    const auto source = [&](std::span<std::byte> out) {
      std::fill(out.begin(), out.end(), static_cast<std::byte>(i));
      ++begun;
      released.wait();
      return absl::OkStatus();
    };
    EXPECT_TRUE(device().Fill(memory.id, i * kLarge, bytes, source).ok());
  };
  for (int i = 0; i < kSlots; ++i) threads.emplace_back([&, i] { copy(i, kLarge); });
  while (begun < kSlots - kLeft) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(begun, kSlots - kLeft) << "the rest go to small ones";
  for (int i = 0; i < kLeft; ++i) threads.emplace_back([&, i] { copy(kSlots + i, kLarge - 1); });
  while (begun < kSlots) std::this_thread::yield();
  release.set_value();
  for (std::thread& thread : threads) thread.join();
  std::vector<std::byte> all(kSlots * kLarge);
  ASSERT_TRUE(device().Read(memory.id, 0, all).ok());
  for (int i = 0; i < kSlots; ++i) {
    EXPECT_EQ(all[static_cast<size_t>(i * kLarge)], static_cast<std::byte>(i));
    EXPECT_EQ(all[static_cast<size_t>((i + 1) * kLarge - 1)], static_cast<std::byte>(i));
  }
}

// As many large transfers as there are slots, all waiting for their source.
TEST_F(CudaDeviceGraphsTest, ASmallCopyDoesNotWaitForTheSourceOfLargeOnes) {
  constexpr int64_t kLarge = 2 << 20;
  const Allocation large = *device().Allocate(2 * kLarge);
  const Allocation small = *device().Allocate(64);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const auto source = [&](std::span<std::byte>) {
        ++begun;
        released.wait();
        return absl::OkStatus();
      };
      EXPECT_TRUE(device().Fill(large.id, i * kLarge, kLarge, source).ok());
    });
  }
  while (begun == 0) std::this_thread::yield();
  std::vector<std::byte> bytes(64, std::byte{7}), back(64);
  auto copied = std::async(std::launch::async, [&] {
    return device().Write(small.id, 0, bytes).ok() && device().Read(small.id, 0, back).ok();
  });
  EXPECT_EQ(copied.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(begun, 1) << "one slot is left to small ones";
  release.set_value();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(copied.get());
  EXPECT_EQ(back, bytes);
}

// Seen through the kernel that works on it: what a launch uses is not freed.
TEST_F(CudaDeviceGraphsTest, MemoryOfALaunchUnderWayIsKept) {
  DeviceSample sample(device(), {{5, 48, 96}});
  const BindingId binding = Bind(sample);
  simulated.driver.Hold();
  ASSERT_TRUE(device().Launch(LaneId{0}, binding, 1).ok());
  EXPECT_EQ(device().Unbind(binding).code(), Code::kFailedPrecondition);
  EXPECT_FALSE(sample.FreeAll());
  simulated.driver.Resume();
  Completion completion;
  ASSERT_TRUE(simulated.Wait(&completion));
  EXPECT_TRUE(device().Unbind(binding).ok());
}

}  // namespace
}  // namespace tetrad::cuda
