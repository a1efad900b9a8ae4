// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeviceContract (tests only): what engine/device.h promises, as one suite that
// every implementation has to pass.
//
// A test program links the whole library and instantiates the suite over its
// devices:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceContract, ::testing::Values(maker), MakerName());
//
// The suite assumes nothing that the header does not say: it asks the device
// for its granule and its limits, and waits without a clock except to call a
// wake-up lost.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/device_sample.h"

namespace tetrad {

struct ContractOptions {
  int64_t memory_bytes = 64 << 20;
  int32_t max_in_flight = 8;
};

// Makes one kind of device.
struct DeviceMaker {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const ContractOptions&,
                                                        std::function<void()> wake)>
      make;
  friend void PrintTo(const DeviceMaker& maker, std::ostream* out) { *out << maker.name; }
};

struct MakerName {
  std::string operator()(const ::testing::TestParamInfo<DeviceMaker>& info) const {
    return info.param.name;
  }
};

// Counts the wake-ups of a device. Shared with it.
class WakeCounter {
 public:
  void Wake();
  uint64_t count() const;
  // Once more than `seen` came. False if none comes for half a minute: it is lost.
  [[nodiscard]] bool WaitBeyond(uint64_t seen) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable woken_;
  uint64_t count_ = 0;  // guarded by mutex_
};

class DeviceContract : public ::testing::TestWithParam<DeviceMaker> {
 protected:
  using Code = absl::StatusCode;

  DeviceContract() { Make({}); }
  // Another device in place of the current one.
  void Make(const ContractOptions& options);
  Device& device() { return *device_; }

  Allocation Allocate(int64_t bytes);
  std::vector<std::byte> Read(AllocationId id, int64_t offset, size_t bytes);
  absl::Status WriteByte(AllocationId id, int64_t offset, uint8_t value);
  // The size that allocations are rounded up to.
  int64_t Granule();
  BindingId Bind(const DeviceSample& sample);
  // Polls only after a wake-up, so that a forgotten one shows.
  std::vector<Completion> WaitFor(size_t count);
  // Launches once on lane 0 and waits. Needs nothing else to be under way.
  Completion RunOnce(BindingId binding);
  // Tries `step` until it returns true; it is to happen in one of many rounds.
  static bool Eventually(const std::function<bool()>& step);

  std::shared_ptr<WakeCounter> wakes_;
  std::unique_ptr<Device> device_;
};

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace tetrad
