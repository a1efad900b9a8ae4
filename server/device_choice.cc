// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/device_choice.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/cpu_device.h"
#include "engine/machine_limits.h"
#include "engine/support/status_macros.h"
#include "server/status.h"
#ifdef TETRAD_CUDA
#include "server/cuda_choice.h"
#endif

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

// Three threads spin beside a GPU: that of Step(), one of the reply pool, the
// device's own. The RPC library and clients need processors, too.
constexpr int kProcessorsToSpin = 8;
// Longer than a client takes from an answer to its next request.
constexpr absl::Duration kGpuSpin = absl::Microseconds(300);

absl::Duration Spin(const Config& config, bool gpu) {
  if (config.spin_microseconds >= 0) return absl::Microseconds(config.spin_microseconds);
  // The CPU device needs the processors for what it computes.
  return gpu && ReadMachineLimits().threads >= kProcessorsToSpin ? kGpuSpin : absl::ZeroDuration();
}

absl::StatusOr<DeviceChoice> ChooseCpu(const Config& config, std::string reason) {
  CpuDevice::Options options;
  options.threads = static_cast<int>(config.threads);
  options.memory_bytes = config.memory_bytes;
  options.max_in_flight = static_cast<int32_t>(config.max_in_flight);
  TETRAD_ASSIGN_OR_RETURN(options.instruction_set, ParseInstructionSet(config.instruction_set));
  return DeviceChoice{
      .factory = [options](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        return CpuDevice::Create(options, std::move(wake));
      },
      .reason = std::move(reason),
      .spin = Spin(config, false)};
}

absl::StatusOr<DeviceChoice> ChooseGpu(const Config& config) {
#ifdef TETRAD_CUDA
  TETRAD_ASSIGN_OR_RETURN(CudaChoice choice, ChooseCuda(config));
  return DeviceChoice{.factory = std::move(choice.factory),
                      .reason = config.device == "auto"
                                    ? absl::StrCat("auto: the first of ", choice.devices, " GPUs")
                                    : "asked for",
                      .spin = Spin(config, true)};
#else
  (void)config;
  return absl::FailedPreconditionError("this build has no CUDA device; it has: cpu");
#endif
}

}  // namespace

absl::StatusOr<DeviceChoice> ChooseDevice(const Config& config) {
  if (config.device == "cpu") return ChooseCpu(config, "asked for");
  if (config.device == "auto") {
    auto gpu = ChooseGpu(config);
    if (gpu.ok()) return gpu;
    return ChooseCpu(config,
                     absl::StrCat("auto: ", gpu.status().message(), "; so the CPU computes"));
  }
  if (config.device.starts_with("cuda:")) {
    auto gpu = ChooseGpu(config);
    if (gpu.ok()) return gpu;
    return absl::Status(gpu.status().code(), absl::StrCat("device '", ErrorText(config.device, 64),
                                                          "': ", gpu.status().message()));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown device '", ErrorText(config.device, 64),
                                                 "'; wanted auto, cpu, cuda:all or cuda:UUID"));
}

}  // namespace tetrad
