// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What register_bench knows of a kind of device: how one is made, and what the
// plain copy to it is that registering is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "engine/device.h"

namespace tetrad {

struct DeviceUnderTest {
  std::function<absl::StatusOr<std::unique_ptr<Device>>(std::function<void()> wake)> make;
  const char* copy;  // says what is copied how
  // Copies so many bytes to such a device, and returns the seconds that took.
  std::function<absl::StatusOr<double>(Device&, int64_t bytes, int threads)> copy_seconds;
};

// Every thread copies from memory that is there already, the same over and over.
DeviceUnderTest CpuUnderTest();

// Copies of 256 MiB of page-locked memory by the driver, one stream, over and over.
// FAILED_PRECONDITION without a driver or device.
absl::StatusOr<DeviceUnderTest> CudaUnderTest();

}  // namespace tetrad
