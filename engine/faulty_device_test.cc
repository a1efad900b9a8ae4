// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Each fault as it shows through the Device interface, and none without one:
// the contract suite runs over the wrapper too.
#include "engine/faulty_device.h"

#include <atomic>

#include <fcntl.h>

#include "engine/cpu_device.h"
#include "engine/device_contract.h"

namespace tetrad {
namespace {

FaultyDevice::Make MakeCpu(const ContractOptions& options) {
  return [options](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
    return CpuDevice::Create({.threads = 2,
                              .memory_bytes = options.memory_bytes,
                              .max_in_flight = options.max_in_flight,
                              .measure_rates = false},
                             std::move(wake));
  };
}

INSTANTIATE_TEST_SUITE_P(Faulty, DeviceContract,
                         ::testing::Values(DeviceMaker{
                             "Cpu",
                             [](const ContractOptions& options, std::function<void()> wake)
                                 -> absl::StatusOr<std::unique_ptr<Device>> {
                               return FaultyDevice::Create(MakeCpu(options), std::move(wake));
                             }}),
                         MakerName());

class FaultyDeviceTest : public ::testing::Test {
 protected:
  using Code = absl::StatusCode;

  FaultyDeviceTest()
      : device_(*FaultyDevice::Create(
            MakeCpu({.max_in_flight = 4}), [wakes = wakes_] { wakes->Wake(); },
            [now = now_] { return now->load(); })),
        sample_(*device_, {{5, 48, 96}}),
        binding_(*device_->Bind(sample_.plan(), sample_.blocks())) {}

  // What was fetched until `count` completions were there or the device, which
  // has finished its work by then, has no more.
  std::vector<uint64_t> Fetch(size_t count) {
    std::vector<uint64_t> tickets;
    Completion completion;
    while (tickets.size() < count) {
      const uint64_t wakes = wakes_->count();
      if (device_->Poll({&completion, 1}) == 1) {
        tickets.push_back(completion.ticket);
      } else if (!wakes_->WaitBeyond(wakes)) {
        ADD_FAILURE() << "a completion is missing";
        break;
      }
    }
    return tickets;
  }
  bool NothingToFetch() {
    Completion completion;
    return device_->Poll({&completion, 1}) == 0;
  }
  // Launches, and waits until the device itself woke for each.
  void LaunchAndFinish(LaneId lane, std::initializer_list<uint64_t> tickets) {
    for (const uint64_t ticket : tickets) {
      const uint64_t wakes = wakes_->count();
      ASSERT_TRUE(device_->Launch(lane, binding_, ticket).ok());
      ASSERT_TRUE(wakes_->WaitBeyond(wakes));
    }
  }

  std::shared_ptr<WakeCounter> wakes_ = std::make_shared<WakeCounter>();
  std::shared_ptr<std::atomic<int64_t>> now_ = std::make_shared<std::atomic<int64_t>>(1000);
  std::unique_ptr<FaultyDevice> device_;
  DeviceSample sample_;
  BindingId binding_;
};

TEST_F(FaultyDeviceTest, AnyCallFailsAtItsNthTimeWithAnyStatus) {
  const Allocation memory = *device_->Allocate(64);
  std::byte byte{};
  const struct {
    Call call;
    std::function<absl::Status()> make;
  } calls[] = {
      {Call::kAllocate, [&] { return device_->Allocate(64).status(); }},
      {Call::kFree, [&] { return device_->Free(device_->Allocate(64)->id); }},
      {Call::kSeal, [&] { return device_->Seal(device_->Allocate(64)->id); }},
      {Call::kExport, [&] { return device_->Export(memory.id).status(); }},
      {Call::kImport,
       [&] {
         return device_->Import(*device_->Export(memory.id), {}, memory.bytes, true).status();
       }},
      {Call::kWrite,
       [&] {
         return device_->Write(memory.id, 0, {&byte, 1});
       }},
      {Call::kRead,
       [&] {
         return device_->Read(memory.id, 0, {&byte, 1});
       }},
      {Call::kClear, [&] { return device_->Clear(memory.id, 0, 1); }},
      {Call::kPackWeights,
       [&] {
         const absl::Status status = device_->PackWeights({});
         // The device within packs none.
         return status.code() == Code::kFailedPrecondition ? absl::OkStatus() : status;
       }},
      {Call::kMakeReady,
       [&] {
         const OperandBlocks& blocks = sample_.blocks();
         return device_->MakeReady(sample_.plan(), blocks.b, blocks.b_scales);
       }},
      {Call::kBind, [&] { return device_->Bind(sample_.plan(), sample_.blocks()).status(); }},
      {Call::kRebind, [&] { return device_->Rebind(binding_, sample_.blocks()); }},
      {Call::kUnbind,
       [&] { return device_->Unbind(*device_->Bind(sample_.plan(), sample_.blocks())); }},
      {Call::kLaunch,
       [&] {
         const absl::Status status = device_->Launch(LaneId{0}, binding_, 1);
         if (status.ok()) Fetch(1);
         return status;
       }},
  };
  ASSERT_EQ(std::size(calls), kCalls);
  for (const auto& [call, make] : calls) {
    SCOPED_TRACE(std::string(Name(call)));
    for (const Code code : {Code::kResourceExhausted, Code::kInternal, Code::kAborted}) {
      const absl::Status injected(code, "as told");
      const int64_t before = device_->calls(call);
      device_->FailNth(call, 3, injected);
      for (int n = 1; n <= 5; ++n) {
        EXPECT_EQ(make(), n == 3 ? injected : absl::OkStatus()) << n;
        EXPECT_EQ(device_->fault_fired(), n >= 3) << n;
      }
      EXPECT_EQ(device_->calls(call), before + 5);
    }
  }
}

TEST_F(FaultyDeviceTest, ACallThatFailsDoesNotReachTheDevice) {
  const MemoryUse before = device_->memory_use();
  device_->FailNth(Call::kAllocate, 1, absl::ResourceExhaustedError("injected"));
  EXPECT_FALSE(device_->Allocate(64).ok());
  EXPECT_EQ(device_->memory_use().allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(device_->memory_use().allocations, before.allocations);

  UniqueFd fd = *device_->Export(sample_.blocks().a.allocation);
  const int number = fd.get();
  device_->FailNth(Call::kImport, 1, absl::InternalError("injected"));
  EXPECT_FALSE(device_->Import(std::move(fd), {}, 4096, false).ok());
  EXPECT_LT(::fcntl(number, F_GETFD), 0) << "the descriptor was given away all the same";

  device_->FailNth(Call::kFree, 1, absl::InternalError("injected"));
  const Allocation kept = *device_->Allocate(64);
  EXPECT_FALSE(device_->Free(kept.id).ok());
  EXPECT_TRUE(device_->Free(kept.id).ok());
}

// The pattern of the header, over something with two call sites.
TEST_F(FaultyDeviceTest, EveryCallSiteIsEnumerated) {
  const int64_t before = device_->memory_use().allocations;
  int64_t n = 1;
  for (;; ++n) {
    device_->FailNth(Call::kAllocate, n, absl::ResourceExhaustedError("injected"));
    const auto first = device_->Allocate(64);
    const auto second = first.ok() ? device_->Allocate(64) : first;
    for (const auto& got : {first, second}) {
      EXPECT_TRUE(!got.ok() || device_->Free(got->id).ok());
    }
    EXPECT_EQ(device_->memory_use().allocations, before);
    if (!device_->fault_fired()) break;
    EXPECT_EQ(first.ok(), n == 2);
    EXPECT_FALSE(second.ok());
  }
  EXPECT_EQ(n, 3);
  device_->StopFailing();
  EXPECT_TRUE(device_->Allocate(64).ok());
}

TEST_F(FaultyDeviceTest, ChanceIsSeeded) {
  const auto failures = [&](double probability, uint64_t seed) {
    device_->FailRandomly(Call::kClear, probability, seed, absl::InternalError("injected"));
    std::vector<int> failed;
    for (int i = 0; i < 1000; ++i) {
      if (!device_->Clear(sample_.blocks().c.allocation, 0, 0).ok()) failed.push_back(i);
    }
    return failed;
  };
  const std::vector<int> some = failures(0.25, 1);
  EXPECT_TRUE(device_->fault_fired());
  EXPECT_GT(some.size(), 200u);
  EXPECT_LT(some.size(), 300u);
  EXPECT_EQ(failures(0.25, 1), some);
  EXPECT_NE(failures(0.25, 2), some);
  EXPECT_EQ(failures(1, 3).size(), 1000u);
  EXPECT_EQ(failures(0, 3).size(), 0u);
  EXPECT_FALSE(device_->fault_fired());
  failures(1, 3);
  device_->StopFailing();
  EXPECT_TRUE(device_->Clear(sample_.blocks().c.allocation, 0, 0).ok());
}

TEST_F(FaultyDeviceTest, HeldCompletionsComeWhenReleased) {
  device_->HoldCompletions();
  LaunchAndFinish(LaneId{0}, {1, 2});
  EXPECT_TRUE(NothingToFetch());
  // To everyone else the launches still run.
  EXPECT_EQ(device_->Unbind(binding_).code(), Code::kFailedPrecondition);
  EXPECT_EQ(device_->Rebind(binding_, sample_.blocks()).code(), Code::kFailedPrecondition);
  EXPECT_FALSE(device_->Free(sample_.blocks().c.allocation).ok());
  LaunchAndFinish(LaneId{1}, {3, 4});
  EXPECT_TRUE(NothingToFetch());
  EXPECT_EQ(device_->Launch(LaneId{0}, binding_, 5).code(), Code::kResourceExhausted);
  const uint64_t wakes = wakes_->count();
  device_->ReleaseCompletions();
  EXPECT_GT(wakes_->count(), wakes);
  EXPECT_EQ(Fetch(4), (std::vector<uint64_t>{1, 2, 3, 4}));
  LaunchAndFinish(LaneId{0}, {6});
  EXPECT_EQ(Fetch(1), std::vector<uint64_t>{6}) << "holding has ended";
  EXPECT_TRUE(device_->Unbind(binding_).ok());
}

TEST_F(FaultyDeviceTest, DelayedCompletionsComeWhenTheClockSays) {
  device_->DelayCompletions(50);
  LaunchAndFinish(LaneId{0}, {1});
  *now_ += 20;
  LaunchAndFinish(LaneId{0}, {2});
  device_->DelayCompletions(0);
  LaunchAndFinish(LaneId{1}, {3});
  EXPECT_EQ(Fetch(1), std::vector<uint64_t>{3}) << "another lane is not slower";
  LaunchAndFinish(LaneId{0}, {4});
  EXPECT_TRUE(NothingToFetch()) << "its own lane runs in order";
  *now_ += 29;
  uint64_t wakes = wakes_->count();
  device_->ClockMoved();
  EXPECT_TRUE(NothingToFetch());
  EXPECT_EQ(wakes_->count(), wakes);
  *now_ += 1;
  device_->ClockMoved();
  EXPECT_GT(wakes_->count(), wakes);
  EXPECT_EQ(Fetch(1), std::vector<uint64_t>{1});
  EXPECT_TRUE(NothingToFetch());
  EXPECT_EQ(device_->Unbind(binding_).code(), Code::kFailedPrecondition);
  wakes = wakes_->count();
  *now_ += 1000;
  device_->ClockMoved();
  EXPECT_GT(wakes_->count(), wakes);
  EXPECT_EQ(Fetch(2), (std::vector<uint64_t>{2, 4}));
  EXPECT_TRUE(device_->Unbind(binding_).ok());
}

TEST_F(FaultyDeviceTest, LostCompletionsNeverComeAndTakeTheirPlace) {
  device_->LoseCompletions(2);
  LaunchAndFinish(LaneId{0}, {1, 2, 3});
  EXPECT_EQ(Fetch(1), std::vector<uint64_t>{3});
  LaunchAndFinish(LaneId{0}, {4, 5});
  EXPECT_EQ(device_->Launch(LaneId{0}, binding_, 6).code(), Code::kResourceExhausted);
  EXPECT_EQ(Fetch(2), (std::vector<uint64_t>{4, 5}));
  device_->ReleaseCompletions();
  *now_ += 1'000'000;
  device_->ClockMoved();
  EXPECT_TRUE(NothingToFetch());
  EXPECT_EQ(device_->Unbind(binding_).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(sample_.Correct()) << "lost is the word, not the work";
}

TEST_F(FaultyDeviceTest, ALaunchFailsAndTheDeviceDoesNot) {
  device_->FailLaunches(1);
  const Code expected[] = {Code::kInternal, Code::kOk, Code::kDataLoss, Code::kDataLoss, Code::kOk};
  for (uint64_t i = 0; i < 5; ++i) {
    if (i == 2) device_->FailLaunches(2, Code::kDataLoss);
    LaunchAndFinish(LaneId{0}, {i});
    Completion completion;
    ASSERT_EQ(device_->Poll({&completion, 1}), 1u);
    EXPECT_EQ(completion.ticket, i);
    EXPECT_EQ(completion.code, expected[i]) << i;
    EXPECT_TRUE(device_->health().ok());
  }
  EXPECT_TRUE(device_->Unbind(binding_).ok());
}

TEST_F(FaultyDeviceTest, ABrokenDeviceStaysBroken) {
  LaunchAndFinish(LaneId{0}, {1});
  EXPECT_TRUE(device_->health().ok());
  const uint64_t wakes = wakes_->count();
  device_->Break();
  EXPECT_GT(wakes_->count(), wakes);
  const absl::Status lost = device_->health();
  EXPECT_EQ(lost.code(), Code::kInternal);
  EXPECT_EQ(device_->Launch(LaneId{0}, binding_, 2), lost);
  EXPECT_TRUE(NothingToFetch()) << "not even what had finished";
  device_->Break(absl::DataLossError("later"));
  device_->StopFailing();
  device_->ReleaseCompletions();
  EXPECT_EQ(device_->health(), lost);
  EXPECT_EQ(device_->Launch(LaneId{0}, binding_, 3), lost);
  EXPECT_TRUE(NothingToFetch());
}

}  // namespace
}  // namespace tetrad
