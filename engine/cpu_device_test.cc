// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/support/doorbell.h"
#include "kernels/float16.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

class CpuDeviceTest : public ::testing::Test {
 protected:
  CpuDeviceTest() { Create(8); }
  void Create(int32_t max_in_flight) {
    auto doorbell = doorbell_;
    device_ = *CpuDevice::Create({.threads = 3,
                                  .memory_bytes = 1 << 20,
                                  .max_in_flight = max_in_flight,
                                  .measure_rates = false},
                                 [doorbell] { doorbell->Ring(); });
  }
  Allocation Allocate(int64_t bytes) { return *device_->Allocate(bytes); }
  std::vector<std::byte> Read(AllocationId id, int64_t offset, size_t bytes) {
    std::vector<std::byte> data(bytes);
    EXPECT_TRUE(device_->Read(id, offset, data).ok());
    return data;
  }
  std::vector<Completion> WaitFor(size_t count) {
    std::vector<Completion> all;
    Completion some[4];
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (all.size() < count) {
      const size_t got = device_->Poll(some);
      all.insert(all.end(), some, some + got);
      if (got == 0 && std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "a completion is lost: " << all.size() << " of " << count;
        all.resize(count);
      } else if (got == 0) {
        doorbell_->WaitUntil(until);
      }
    }
    return all;
  }

  std::shared_ptr<Doorbell> doorbell_ = std::make_shared<Doorbell>();
  std::unique_ptr<CpuDevice> device_;
};

TEST_F(CpuDeviceTest, MemoryIsZeroedBoundedAndNeverComesBackUnderAnOldId) {
  const Allocation a = Allocate(100);
  EXPECT_EQ(a.bytes, 4096);
  EXPECT_EQ(Read(a.id, 0, 4096), std::vector<std::byte>(4096));
  const std::byte value{0x5A};
  ASSERT_TRUE(device_->Write(a.id, 4095, {&value, 1}).ok());
  EXPECT_EQ(device_->memory_use().allocated_bytes, 4096);
  ASSERT_TRUE(device_->Free(a.id).ok());
  EXPECT_TRUE(absl::IsAborted(device_->Free(a.id)));
  const Allocation b = Allocate(4096);
  EXPECT_NE(a.id, b.id);
  EXPECT_FALSE(a.identity == b.identity);
  EXPECT_EQ(Read(b.id, 4095, 1)[0], std::byte{0});
  std::byte byte;
  EXPECT_TRUE(absl::IsAborted(device_->Read(a.id, 0, {&byte, 1})));
  EXPECT_TRUE(absl::IsAborted(device_->Read(AllocationId::kNone, 0, {&byte, 1})));
  const auto refused = device_->Allocate((1 << 20) - 4095);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("1048576 bytes wanted, 1044480 of 1048576 left"));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Allocate(-1).status()));
  EXPECT_TRUE(device_->Allocate(1044480).ok());
}

TEST_F(CpuDeviceTest, AFailedAllocationLeavesNothingBehind) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status refused = device_->Allocate(1 << 20).status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(device_->memory_use().allocated_bytes, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(device_->Allocate(INT64_MAX).status()));
  EXPECT_TRUE(device_->Allocate(1 << 20).ok());
}

TEST_F(CpuDeviceTest, TheNameIsStableAndKeepsTheMachineIdSecret) {
  const std::string uuid = device_->limits().uuid;
  Create(8);
  EXPECT_EQ(device_->limits().uuid, uuid);
  EXPECT_EQ(uuid.substr(0, 4), "cpu-");
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  EXPECT_TRUE(id.empty() || uuid.find(id) == std::string::npos) << uuid;
}

TEST_F(CpuDeviceTest, RangesAreCheckedWithoutOverflow) {
  const Allocation a = Allocate(4096);
  std::byte bytes[2];
  for (const int64_t offset : {int64_t{4095}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Read(a.id, offset, bytes))) << offset;
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Write(a.id, offset, bytes))) << offset;
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Clear(a.id, offset, 2))) << offset;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Clear(a.id, 0, INT64_MAX)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Clear(a.id, 0, -1)));
  EXPECT_TRUE(device_->Clear(a.id, 4096, 0).ok());
}

TEST_F(CpuDeviceTest, ExportedMemoryIsSharedAndSealedMemoryIsReadOnlyEverywhere) {
  const Allocation a = Allocate(4096);
  UniqueFd fd = *device_->Export(a.id);
  const Allocation twin = *device_->Import(UniqueFd(::dup(fd.get())), a.identity, true);
  EXPECT_TRUE(twin.identity == a.identity);
  const std::byte value{0x77};
  ASSERT_TRUE(device_->Write(twin.id, 9, {&value, 1}).ok());
  EXPECT_EQ(Read(a.id, 9, 1)[0], value);
  ASSERT_TRUE(device_->Free(twin.id).ok());

  ASSERT_TRUE(device_->Seal(a.id).ok());
  ASSERT_TRUE(device_->Seal(a.id).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Write(a.id, 0, {&value, 1})));
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_LT(::write(fd.get(), &value, 1), 0);
  EXPECT_LT(::ftruncate(fd.get(), 0), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      device_->Import(UniqueFd(::dup(fd.get())), a.identity, true).status()));
  const Allocation reader = *device_->Import(std::move(fd), a.identity, false);
  EXPECT_EQ(Read(reader.id, 9, 1)[0], value);
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Write(reader.id, 0, {&value, 1})));
}

TEST_F(CpuDeviceTest, ImportRefusesWhatCouldShrink) {
  UniqueFd plain(::memfd_create("plain", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(plain.get(), 4096), 0);
  EXPECT_TRUE(
      absl::IsInvalidArgument(device_->Import(UniqueFd(::dup(plain.get())), {}, true).status()));
  ASSERT_EQ(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(device_->Import(std::move(plain), {}, true).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      device_->Import(UniqueFd(::open("/dev/null", O_RDWR)), {}, true).status()));
}

// A one-group problem over one allocation: C = A * B with A all 1.0 (FP16).
class CpuLaunchTest : public CpuDeviceTest {
 protected:
  static constexpr int32_t kM = 3, kN = 40, kK = 64;

  CpuLaunchTest() { MakeProblem(); }
  void MakeProblem() {
    Signature s;
    s.types.a_type = ActivationType::kFp16;
    s.types.c_type = OutputType::kFp32;
    s.form = GroupForm::kStacked;
    s.groups = {{kM, kN, kK}};
    plan_ = std::make_shared<const Plan>(*BuildPlan(*Canonicalize(s), device_->limits()));
    memory_ = Allocate(65536).id;
    const auto block = [this](int64_t offset, int64_t bytes) {
      return BlockRef{memory_, offset, bytes};
    };
    blocks_.a = block(0, kM * kK * 2);
    blocks_.b = block(1024, kN * kK / 2);
    blocks_.b_scales = block(4096, kN * kK / 16);
    blocks_.c = block(8192, kM * kN * 4);
    blocks_.alpha = block(16384, 4);
    const std::vector<uint16_t> a(kM * kK, 0x3C00);
    const std::vector<uint8_t> b(kN * kK / 2, 0x22), scales(kN * kK / 16, 0x38);  // 1.0 * 1.0
    const float alpha = 1;
    Put(0, std::as_bytes(std::span(a)));
    Put(1024, std::as_bytes(std::span(b)));
    Put(4096, std::as_bytes(std::span(scales)));
    Put(16384, std::as_bytes(std::span(&alpha, 1)));
  }
  void Put(int64_t offset, std::span<const std::byte> data) {
    ASSERT_TRUE(device_->Write(memory_, offset, data).ok());
  }
  std::vector<float> Output() {
    std::vector<float> c(kM * kN);
    EXPECT_TRUE(device_->Read(memory_, 8192, std::as_writable_bytes(std::span(c))).ok());
    return c;
  }

  std::shared_ptr<const Plan> plan_;
  AllocationId memory_{};
  OperandBlocks blocks_;
};

TEST_F(CpuLaunchTest, RunsAndPinsWhatItIsBoundTo) {
  const BindingId binding = *device_->Bind(plan_, blocks_);
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Free(memory_)));
  ASSERT_TRUE(device_->Launch(LaneId{0}, binding, 42).ok());
  const std::vector<Completion> done = WaitFor(1);
  EXPECT_EQ(done[0].ticket, 42u);
  EXPECT_EQ(done[0].code, absl::StatusCode::kOk);
  EXPECT_GT(done[0].device_ns, 0);
  EXPECT_EQ(Output(), std::vector<float>(kM * kN, kK));
  // Alphas are read at every launch, not at Bind().
  const float alpha = 0.5f;
  Put(16384, std::as_bytes(std::span(&alpha, 1)));
  ASSERT_TRUE(device_->Launch(LaneId{1}, binding, 43).ok());
  WaitFor(1);
  EXPECT_EQ(Output(), std::vector<float>(kM * kN, kK / 2));
  ASSERT_TRUE(device_->Unbind(binding).ok());
  EXPECT_TRUE(absl::IsAborted(device_->Unbind(binding)));
  EXPECT_TRUE(absl::IsAborted(device_->Launch(LaneId{0}, binding, 44)));
  EXPECT_TRUE(device_->Free(memory_).ok());
}

TEST_F(CpuLaunchTest, EveryBlockIsCheckedAgainstThePlan) {
  const struct {
    const char* name;
    BlockRef OperandBlocks::*block;
  } operands[] = {{"activations", &OperandBlocks::a},
                  {"weights codes", &OperandBlocks::b},
                  {"weights scales", &OperandBlocks::b_scales},
                  {"output", &OperandBlocks::c},
                  {"alpha", &OperandBlocks::alpha}};
  for (const auto& [name, block] : operands) {
    const auto refused = [&](auto change, absl::StatusCode code, const char* text) {
      OperandBlocks blocks = blocks_;
      change(blocks.*block);
      const auto bound = device_->Bind(plan_, blocks);
      EXPECT_EQ(bound.status().code(), code) << name << ": " << bound.status();
      EXPECT_THAT(std::string(bound.status().message()),
                  HasSubstr(std::string(name) + ": " + text));
    };
    refused([](BlockRef& b) { b.bytes -= 1; }, absl::StatusCode::kInvalidArgument, "block of");
    refused([](BlockRef& b) { b.offset += 8; }, absl::StatusCode::kInvalidArgument, "block offset");
    refused([](BlockRef& b) { b.offset = 65536; }, absl::StatusCode::kInvalidArgument, "block: ");
    refused([](BlockRef& b) { b.offset = -16; }, absl::StatusCode::kInvalidArgument, "block: ");
    refused([](BlockRef& b) { b.bytes = INT64_MAX; }, absl::StatusCode::kInvalidArgument,
            "block: ");
    refused([](BlockRef& b) { b.allocation = AllocationId::kNone; }, absl::StatusCode::kAborted,
            "");
  }
  EXPECT_TRUE(device_->Free(memory_).ok()) << "a failed Bind() pins nothing";
}

TEST_F(CpuLaunchTest, SealedMemoryCannotBeTheOutput) {
  ASSERT_TRUE(device_->Seal(memory_).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Bind(plan_, blocks_).status()));
}

TEST_F(CpuLaunchTest, LaunchesOfALaneCompleteInOrderAndAreBounded) {
  const BindingId binding = *device_->Bind(plan_, blocks_);
  uint64_t launched = 0, seen = 0;
  bool was_full = false;
  while (seen < 2000) {
    while (launched < 2000) {
      const absl::Status status = device_->Launch(LaneId{0}, binding, launched);
      if (!status.ok()) {
        ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
        was_full = true;
        break;
      }
      ++launched;
      ASSERT_LE(launched - seen, 8u);
    }
    for (const Completion& completion : WaitFor(1)) ASSERT_EQ(completion.ticket, seen++);
  }
  EXPECT_TRUE(was_full);
  for (const LaneId lane : {LaneId{99}, LaneId{0x80000000u}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Launch(lane, binding, 0)));
  }
  EXPECT_TRUE(device_->Unbind(binding).ok());
}

TEST_F(CpuLaunchTest, ABindingInUseIsKept) {
  bool refused = false;
  for (int round = 0; round < 1000 && !refused; ++round) {
    const BindingId binding = *device_->Bind(plan_, blocks_);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(device_->Launch(LaneId{0}, binding, i).ok());
    const absl::Status status = device_->Unbind(binding);
    WaitFor(8);
    refused = absl::IsFailedPrecondition(status);
    EXPECT_EQ(device_->Unbind(binding).ok(), refused);
  }
  EXPECT_TRUE(refused);
}

TEST_F(CpuLaunchTest, DestructionFinishesWhatWasLaunched) {
  const BindingId binding = *device_->Bind(plan_, blocks_);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(device_->Launch(LaneId{0}, binding, i).ok());
  device_.reset();
}

// Counts that lie: clamped to the capacity, reported, and nothing outside the
// reserved rows is written.
TEST_F(CpuLaunchTest, DeviceSideCountsAreClampedAndReported) {
  Signature s = plan_->signature;
  s.groups = {{0, kN, kK}, {0, kN, kK}};
  s.m_source = MSource::kCounts;
  s.capacity_rows = 2;
  const auto plan = std::make_shared<const Plan>(*BuildPlan(*Canonicalize(s), device_->limits()));
  const AllocationId memory = Allocate(131072).id;
  OperandBlocks blocks;
  blocks.a = {memory, 0, plan->layout.a_bytes};
  blocks.b = {memory, 4096, WeightCodeBytes(s)};
  blocks.b_scales = {memory, 16384, WeightScaleBytes(s)};
  blocks.c = {memory, 32768, plan->layout.c_bytes};
  blocks.alpha = {memory, 65536, 8};
  blocks.m_values = {memory, 65552, 8};
  const std::vector<uint8_t> guard(4096, 0xEE);
  ASSERT_TRUE(
      device_->Write(memory, 32768 + plan->layout.c_bytes, std::as_bytes(std::span(guard))).ok());
  const BindingId binding = *device_->Bind(plan, blocks);
  const struct {
    int32_t counts[2];
    uint32_t error;
  } cases[] = {{{2, 1}, 0},
               {{0, 0}, 0},
               {{3, 0}, kErrorCountOutOfRange},
               {{-1, 2}, kErrorCountOutOfRange},
               {{INT32_MAX, INT32_MIN}, kErrorCountOutOfRange}};
  for (const auto& c : cases) {
    ASSERT_TRUE(device_->Write(memory, 65552, std::as_bytes(std::span(c.counts))).ok());
    ASSERT_TRUE(device_->Launch(LaneId{0}, binding, 1).ok());
    EXPECT_EQ(WaitFor(1)[0].error_word, c.error);
    const auto after = Read(memory, 32768 + plan->layout.c_bytes, guard.size());
    EXPECT_EQ(std::memcmp(after.data(), guard.data(), guard.size()), 0);
  }
}

}  // namespace
}  // namespace tetrad
