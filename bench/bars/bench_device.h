// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The device that figures are measured on.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "bench/bars/figure.h"
#include "engine/engine.h"

namespace tetrad::bars {

struct DeviceFacts {
  std::string name;
  std::string uuid;
};
// Opens the device once. FAILED_PRECONDITION where there is none of the kind.
absl::StatusOr<DeviceFacts> FindDevice(DeviceKind kind);

// Makes the device of the setting, its rates not measured.
Engine::DeviceFactory FactoryOf(const Setting& setting);

}  // namespace tetrad::bars
