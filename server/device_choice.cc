// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/device_choice.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "engine/cpu_device.h"
#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

absl::StatusOr<std::optional<cpu::InstructionSet>> ParseInstructionSet(const std::string& text) {
  if (text == "auto") return std::nullopt;
  for (int i = 0; i < cpu::kInstructionSets; ++i) {
    const auto set = static_cast<cpu::InstructionSet>(i);
    if (text != cpu::Name(set)) continue;
    if (cpu::Supported(set)) return set;
    return absl::FailedPreconditionError(
        absl::StrCat("instruction set ", text, " is not available here; the best that is: ",
                     std::string(cpu::Name(cpu::BestInstructionSet()))));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set '", ErrorText(text, 64), "'"));
}

absl::StatusOr<DeviceChoice> ChooseCpu(const Config& config, std::string reason) {
  CpuDevice::Options options;
  options.threads = static_cast<int>(config.threads);
  options.memory_bytes = config.memory_bytes;
  TETRAD_ASSIGN_OR_RETURN(options.instruction_set, ParseInstructionSet(config.instruction_set));
  return DeviceChoice{
      .factory = [options](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        return CpuDevice::Create(options, std::move(wake));
      },
      .reason = std::move(reason)};
}

}  // namespace

absl::StatusOr<DeviceChoice> ChooseDevice(const Config& config) {
  if (config.device == "cpu") return ChooseCpu(config, "asked for");
  if (config.device == "auto") {
    return ChooseCpu(config, "auto: this build has no CUDA device, so the CPU computes");
  }
  if (absl::StartsWith(config.device, "cuda:")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device '", ErrorText(config.device, 64), "': this build has no CUDA device; it has: cpu"));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown device '", ErrorText(config.device, 64),
                                                 "'; wanted auto, cpu, cuda:all or cuda:UUID"));
}

}  // namespace tetrad
