// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeviceChoice: which device --device means on this machine, and how to make it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "engine/engine.h"
#include "server/config.h"

namespace tetrad {

struct DeviceChoice {
  Engine::DeviceFactory factory;
  std::string reason;  // for the log
  // How long the daemon's threads should spin for work before they sleep.
  absl::Duration spin;
};

// INVALID_ARGUMENT: no such device can exist. FAILED_PRECONDITION: not here;
// says what this build or processor lacks.
absl::StatusOr<DeviceChoice> ChooseDevice(const Config& config);

}  // namespace tetrad
