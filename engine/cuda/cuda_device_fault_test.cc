// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Every call of the driver fails once, in every operation of the CUDA device:
// for lack of memory, after which nothing is left behind and the operation
// succeeds, and for good, after which the device says so and its end comes. For
// calls that wait any failure is of the latter kind.
#include <chrono>
#include <functional>
#include <iterator>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_device.h"
#include "engine/support/status_macros.h"

namespace tetrad::cuda {
namespace {

using Code = absl::StatusCode;

const std::vector<GroupShape> kShapes = {{5, 48, 96}, {0, 24, 64}, {33, 70, 64}};

// What operations work on, made before anything fails.
struct Workplace {
  explicit Workplace(CudaDevice& of)
      : device(of), sample(of, kShapes), other(of, kShapes, {.sample = {.seed = 2}}) {
    spare = *device.Allocate(100);
  }
  CudaDevice& device;
  DeviceSample sample, other;  // of the same shapes, other data
  Allocation spare;
  BindingId binding = BindingId::kNone;

  absl::Status Bind() {
    TETRAD_ASSIGN_OR_RETURN(binding, device.Bind(sample.plan(), sample.blocks()));
    return absl::OkStatus();
  }
  absl::Status Unbind() { return device.Unbind(std::exchange(binding, BindingId::kNone)); }
};

struct Operation {
  const char* name;
  // What it needs done before.
  std::function<absl::Status(SimulatedDevice&, Workplace&)> prepare;
  // Leaves nothing behind when it fails.
  std::function<absl::Status(SimulatedDevice&, Workplace&)> run;
  // After it succeeded: its result is right. Undoes it.
  std::function<void(SimulatedDevice&, Workplace&)> check;

  friend void PrintTo(const Operation& operation, std::ostream* out) { *out << operation.name; }
};

absl::Status LaunchAndWait(SimulatedDevice& simulated, BindingId binding) {
  TETRAD_RETURN_IF_ERROR(simulated.device->Launch(LaneId{0}, binding, 7));
  Completion completion;
  if (!simulated.Wait(&completion)) return absl::InternalError("no completion");
  if (completion.ticket != 7 || completion.error_word != 0 || completion.code != Code::kOk) {
    return absl::InternalError("a wrong completion");
  }
  return absl::OkStatus();
}

absl::Status Nothing(SimulatedDevice&, Workplace&) { return absl::OkStatus(); }
absl::Status BindSample(SimulatedDevice&, Workplace& place) { return place.Bind(); }
void UnbindSample(SimulatedDevice&, Workplace& place) { EXPECT_TRUE(place.Unbind().ok()); }

// Launches the binding, expects the exact result in the output of `of`, unbinds.
void CheckBinding(SimulatedDevice& simulated, Workplace& place, DeviceSample& of) {
  const absl::Status launched = LaunchAndWait(simulated, place.binding);
  EXPECT_TRUE(launched.ok()) << launched;
  EXPECT_TRUE(of.Correct());
  UnbindSample(simulated, place);
}

std::vector<std::byte> SomeBytes() { return std::vector<std::byte>(100, std::byte{0x3D}); }

const Operation kOperations[] = {
    {"Allocate", Nothing,
     [](SimulatedDevice&, Workplace& place) {
       TETRAD_ASSIGN_OR_RETURN(const Allocation made, place.device.Allocate(1));
       std::vector<std::byte> data(static_cast<size_t>(made.bytes), std::byte{1});
       const absl::Status read = place.device.Read(made.id, 0, data);
       // The driver can fail where something is read, too; then it is freed all the same.
       const absl::Status freed = place.device.Free(made.id);
       TETRAD_RETURN_IF_ERROR(read);
       EXPECT_EQ(data, std::vector<std::byte>(data.size())) << "memory is zeroed";
       return freed;
     },
     [](SimulatedDevice&, Workplace&) {}},
    {"ExportAndImport", Nothing,
     [](SimulatedDevice&, Workplace& place) {
       TETRAD_ASSIGN_OR_RETURN(UniqueFd fd, place.device.Export(place.spare.id));
       TETRAD_ASSIGN_OR_RETURN(const Allocation twin,
                               place.device.Import(std::move(fd), place.spare.identity,
                                                   place.spare.bytes, /*writable=*/false));
       EXPECT_EQ(place.device.Write(twin.id, 0, SomeBytes()).code(), Code::kFailedPrecondition);
       return place.device.Free(twin.id);
     },
     [](SimulatedDevice&, Workplace&) {}},
    {"Seal", Nothing,
     [](SimulatedDevice&, Workplace& place) { return place.device.Seal(place.spare.id); },
     [](SimulatedDevice&, Workplace& place) {
       EXPECT_EQ(place.device.Write(place.spare.id, 0, SomeBytes()).code(),
                 Code::kFailedPrecondition);
     }},
    {"Copies", Nothing,
     [](SimulatedDevice&, Workplace& place) {
       TETRAD_RETURN_IF_ERROR(place.device.Write(place.spare.id, 0, SomeBytes()));
       TETRAD_RETURN_IF_ERROR(
           place.device.Fill(place.spare.id, 10, 10, [](std::span<std::byte> out) {
             std::fill(out.begin(), out.end(), std::byte{0x4E});
             return absl::OkStatus();
           }));
       return place.device.Clear(place.spare.id, 20, 10);
     },
     [](SimulatedDevice&, Workplace& place) {
       std::vector<std::byte> expected = SomeBytes(), data(100);
       std::fill_n(expected.begin() + 10, 10, std::byte{0x4E});
       std::fill_n(expected.begin() + 20, 10, std::byte{0});
       EXPECT_TRUE(place.device.Read(place.spare.id, 0, data).ok());
       EXPECT_EQ(data, expected);
     }},
    {"MakeReady", Nothing,
     [](SimulatedDevice&, Workplace& place) {
       return place.device.MakeReady(place.sample.plan(), place.sample.blocks().b,
                                     place.sample.blocks().b_scales);
     },
     [](SimulatedDevice& simulated, Workplace& place) {
       EXPECT_EQ(place.device.execution_use().proofs, 1);
       ASSERT_TRUE(place.Bind().ok());
       EXPECT_EQ(place.device.execution_use().proofs, 1) << "once is enough";
       CheckBinding(simulated, place, place.sample);
     }},
    {"Bind", Nothing, BindSample,
     [](SimulatedDevice& simulated, Workplace& place) {
       CheckBinding(simulated, place, place.sample);
     }},
    {"Rebind", BindSample,
     [](SimulatedDevice& simulated, Workplace& place) {
       const absl::Status status = place.device.Rebind(place.binding, place.other.blocks());
       if (!status.ok() && place.device.health().ok()) {
         // As it was before.
         place.sample.ClearOutput();
         EXPECT_TRUE(LaunchAndWait(simulated, place.binding).ok());
         EXPECT_TRUE(place.sample.Correct());
       }
       return status;
     },
     [](SimulatedDevice& simulated, Workplace& place) {
       CheckBinding(simulated, place, place.other);
     }},
    {"Launch", BindSample,
     [](SimulatedDevice& simulated, Workplace& place) {
       return LaunchAndWait(simulated, place.binding);
     },
     [](SimulatedDevice& simulated, Workplace& place) {
       CheckBinding(simulated, place, place.sample);
     }},
    {"LaunchEagerly", BindSample,
     [](SimulatedDevice& simulated, Workplace& place) {
       return simulated.device->LaunchEagerly(place.binding);
     },
     [](SimulatedDevice& simulated, Workplace& place) {
       CheckBinding(simulated, place, place.sample);
     }},
};

// Both kinds of driver: releases in a broken context say so, or do not.
SimulatedHardware Hardware(bool releases_tell) {
  SimulatedHardware hardware = SmallHardware();
  hardware.releases_tell_of_a_broken_context = releases_tell;
  return hardware;
}

class CudaDeviceFaultTest : public ::testing::TestWithParam<Operation> {};

TEST_P(CudaDeviceFaultTest, ALackOfMemoryAnywhereLeavesNothingBehind) {
  const Operation& operation = GetParam();
  bool failed = true;
  for (int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n));
    SimulatedDevice simulated;
    ASSERT_TRUE(simulated.Create().ok());
    Workplace place(*simulated.device);
    ASSERT_TRUE(operation.prepare(simulated, place).ok());
    const MemoryUse before = simulated.device->memory_use();
    simulated.driver.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
    const absl::Status status = operation.run(simulated, place);
    failed = simulated.driver.faults_used();
    SCOPED_TRACE(simulated.driver.last_fault());
    simulated.driver.ClearFaults();
    EXPECT_TRUE(simulated.device->health().ok());
    EXPECT_EQ(simulated.device->memory_use().allocations, before.allocations);
    EXPECT_EQ(simulated.device->memory_use().allocated_bytes, before.allocated_bytes);
    if (failed) {
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    }
    if (!status.ok()) {
      simulated.ExpectAccounted();
      const absl::Status again = operation.run(simulated, place);
      EXPECT_TRUE(again.ok()) << again;
    }
    operation.check(simulated, place);
    simulated.ExpectAccounted();
    EXPECT_TRUE(place.sample.FreeAll());
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaDeviceFaultTest, ALossAnywhereIsForEver) {
  const Operation& operation = GetParam();
  for (const bool releases_tell : {false, true}) {
    bool broken = true;
    for (int64_t n = 0; broken; ++n) {
      SCOPED_TRACE(absl::StrCat("call ", n));
      SimulatedDevice simulated(SimulatedDevice::SmallOptions(), Hardware(releases_tell));
      ASSERT_TRUE(simulated.Create().ok());
      Workplace place(*simulated.device);
      ASSERT_TRUE(operation.prepare(simulated, place).ok());
      const uint64_t wakes = simulated.wakes->count();
      simulated.driver.BreakAtCall(n, CUDA_ERROR_ILLEGAL_ADDRESS);
      const absl::Status status = operation.run(simulated, place);
      broken = simulated.driver.faults_used();
      simulated.driver.ClearFaults();
      if (!broken) continue;
      SCOPED_TRACE(simulated.driver.last_fault());
      // If it was the last call and one that does not tell, the next one finds out.
      EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
      EXPECT_TRUE(absl::IsInternal(simulated.device->Allocate(1).status()));
      EXPECT_TRUE(absl::IsInternal(simulated.device->health()));
      EXPECT_GT(simulated.wakes->count(), wakes);
      EXPECT_TRUE(absl::IsInternal(place.device.Write(place.spare.id, 0, SomeBytes())));
      EXPECT_TRUE(
          absl::IsInternal(place.device.Bind(place.sample.plan(), place.sample.blocks()).status()));
      if (place.binding != BindingId::kNone) {
        EXPECT_TRUE(absl::IsInternal(place.device.Launch(LaneId{0}, place.binding, 1)));
      }
    }
  }
}

// None of these is the end of a context.
CUresult HarmlessError(int64_t n) {
  constexpr CUresult kErrors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                  CUDA_ERROR_NOT_SUPPORTED};
  return kErrors[static_cast<size_t>(n) % std::size(kErrors)];
}

// Work takes long enough to be under way when the wait for it has failed; that what
// it uses is not given back is the driver's to see.
TEST_P(CudaDeviceFaultTest, AWaitThatFailsEndsTheDevice) {
  const Operation& operation = GetParam();
  bool failed = true;
  for (int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(absl::StrCat("wait ", n));
    SimulatedDevice simulated;
    ASSERT_TRUE(simulated.Create().ok());
    Workplace place(*simulated.device);
    ASSERT_TRUE(operation.prepare(simulated, place).ok());
    const uint64_t wakes = simulated.wakes->count();
    simulated.driver.DelayWork(std::chrono::milliseconds(1));
    simulated.driver.FailWait(n, HarmlessError(n));
    const absl::Status status = operation.run(simulated, place);
    failed = simulated.driver.faults_used();
    simulated.driver.ClearFaults();
    if (!failed) continue;
    SCOPED_TRACE(simulated.driver.last_fault());
    EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
    EXPECT_TRUE(absl::IsInternal(place.device.health())) << place.device.health();
    EXPECT_GT(simulated.wakes->count(), wakes);
    EXPECT_EQ(place.device.Free(place.spare.id), place.device.health());
    EXPECT_EQ(place.device.Allocate(1).status(), place.device.health());
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, CudaDeviceFaultTest, ::testing::ValuesIn(kOperations),
                         [](const auto& info) { return std::string(info.param.name); });

// A creation whose n-th call lacks memory; whether it had as many calls.
bool CreateWithLack(int64_t n, const CudaDevice::Options& options) {
  SimulatedDevice simulated(options);
  simulated.driver.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
  const absl::Status status = simulated.Create();
  const bool failed = simulated.driver.faults_used();
  SCOPED_TRACE(absl::StrCat("call ", n, ": ", simulated.driver.last_fault()));
  simulated.driver.ClearFaults();
  EXPECT_FALSE(simulated.driver.broken());
  if (failed) {
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  }
  simulated.Destroy();
  if (!options.measure_rates) {
    EXPECT_TRUE(simulated.Create().ok());
  }
  return failed;
}

TEST(CudaDeviceCreationTest, ALackOfMemoryAnywhereLeavesNothingBehind) {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  int64_t calls = 0;
  while (CreateWithLack(calls, options)) ++calls;
  EXPECT_GT(calls, 30);
#ifndef __SANITIZE_THREAD__  // minutes of clearing memory, by no other threads than above
  // Rates are measured before the last of these calls, over much memory: only what they add.
  options.measure_rates = true;
  for (int64_t n = calls - options.lanes - 1; CreateWithLack(n, options);) ++n;
#endif
}

TEST(CudaDeviceCreationTest, ALossAnywhereEndsIt) {
  for (const bool releases_tell : {false, true}) {
    bool broken = true;
    for (int64_t n = 0; broken; ++n) {
      SimulatedDevice simulated(SimulatedDevice::SmallOptions(), Hardware(releases_tell));
      simulated.driver.BreakAtCall(n, CUDA_ERROR_ILLEGAL_ADDRESS);
      const absl::Status status = simulated.Create();
      broken = simulated.driver.faults_used();
      SCOPED_TRACE(absl::StrCat("call ", n, ": ", simulated.driver.last_fault()));
      EXPECT_EQ(status.ok(), !broken) << status;
      simulated.device.reset();
      EXPECT_EQ(simulated.driver.counts().context_retains, 0);
    }
  }
}

TEST(CudaDeviceCreationTest, AWaitThatFailsEndsIt) {
  CudaDevice::Options options = SimulatedDevice::SmallOptions();
  options.memory_bytes = 4 << 20;
  options.measure_rates = true;
  int64_t n = 0;
  for (bool failed = true; failed; ++n) {
    SimulatedDevice simulated(options);
    simulated.driver.DelayWork(std::chrono::milliseconds(1));
    simulated.driver.FailWait(n, HarmlessError(n));
    const absl::Status status = simulated.Create();
    failed = simulated.driver.faults_used();
    SCOPED_TRACE(absl::StrCat("wait ", n, ": ", simulated.driver.last_fault()));
    EXPECT_EQ(status.ok(), !failed) << status;
    EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
  }
  EXPECT_GT(n, 12) << "rates are readings of two kinds, six each";
}

TEST(CudaDeviceDestructionTest, AWaitThatFailsEndsIt) {
  int64_t n = 0;
  for (bool failed = true; failed; ++n) {
    SimulatedDevice simulated;
    ASSERT_TRUE(simulated.Create().ok());
    Workplace place(*simulated.device);
    ASSERT_TRUE(place.Bind().ok());
    ASSERT_TRUE(simulated.device->Launch(LaneId{0}, place.binding, 1).ok());
    simulated.driver.FailWait(n, HarmlessError(n));
    simulated.Destroy();
    failed = simulated.driver.faults_used();
    // Of a lost device no memory is given back.
    EXPECT_EQ(simulated.driver.counts().memory_handles > 0, failed);
  }
  EXPECT_EQ(n, 3) << "one wait for each lane";
}

// Bindings, launches under way, memory of every kind: whatever is lost when.
TEST(CudaDeviceDestructionTest, ALossAnywhereEndsIt) {
  for (const bool releases_tell : {false, true}) {
    bool broken = true;
    for (int64_t n = 0; broken; ++n) {
      SimulatedDevice simulated(SimulatedDevice::SmallOptions(), Hardware(releases_tell));
      ASSERT_TRUE(simulated.Create().ok());
      Workplace place(*simulated.device);
      ASSERT_TRUE(place.Bind().ok());
      ASSERT_TRUE(simulated.device->Launch(LaneId{0}, place.binding, 1).ok());
      simulated.driver.BreakAtCall(n, CUDA_ERROR_ILLEGAL_ADDRESS);
      simulated.device.reset();
      broken = simulated.driver.faults_used();
      EXPECT_EQ(simulated.driver.counts().context_retains, 0);
      if (!broken) {
        EXPECT_EQ(simulated.driver.counts(), DriverCounts());
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::cuda
