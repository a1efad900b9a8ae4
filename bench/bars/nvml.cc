// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/nvml.h"

#include <dlfcn.h>

namespace tetrad::bars {
namespace {

using Device = struct nvmlDevice_st*;
using Init = int (*)();
using SystemGetDriverVersion = int (*)(char* version, unsigned length);
using DeviceGetHandleByUUID = int (*)(const char* uuid, Device* device);
using DeviceGetClockInfo = int (*)(Device device, int type, unsigned* mhz);

constexpr int kSuccess = 0;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;

}  // namespace

Nvml::Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  const auto init = reinterpret_cast<Init>(Find("nvmlInit_v2"));
  if (library_ != nullptr && (init == nullptr || init() != kSuccess)) {
    ::dlclose(library_);
    library_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  const auto shutdown = reinterpret_cast<Init>(Find("nvmlShutdown"));
  if (shutdown != nullptr) shutdown();
  ::dlclose(library_);
}

void* Nvml::Find(const char* symbol) const {
  return library_ == nullptr ? nullptr : ::dlsym(library_, symbol);
}

std::optional<std::string> Nvml::DriverVersion() const {
  const auto get = reinterpret_cast<SystemGetDriverVersion>(Find("nvmlSystemGetDriverVersion"));
  char version[96] = {};
  if (get == nullptr || get(version, sizeof(version)) != kSuccess) return std::nullopt;
  return version;
}

std::optional<Clocks> Nvml::ClocksOf(const std::string& uuid) const {
  const auto find = reinterpret_cast<DeviceGetHandleByUUID>(Find("nvmlDeviceGetHandleByUUID"));
  const auto clock = reinterpret_cast<DeviceGetClockInfo>(Find("nvmlDeviceGetClockInfo"));
  Device device = nullptr;
  Clocks clocks;
  if (find == nullptr || clock == nullptr || find(uuid.c_str(), &device) != kSuccess ||
      clock(device, kClockSm, &clocks.sm_mhz) != kSuccess ||
      clock(device, kClockMemory, &clocks.memory_mhz) != kSuccess) {
    return std::nullopt;
  }
  return clocks;
}

}  // namespace tetrad::bars
