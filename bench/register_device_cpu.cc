// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <thread>
#include <vector>

#include "bench/register_device.h"
#include "engine/cpu_device.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int64_t kBlockBytes = int64_t{16} << 20;

absl::StatusOr<double> CopySeconds(Device& device, int64_t bytes, int threads) {
  TETRAD_ASSIGN_OR_RETURN(const Allocation memory, device.Allocate(bytes));
  const std::vector<std::byte> from(kBlockBytes, std::byte{1});
  const auto copy = [&](int64_t first) {
    for (int64_t at = first * kBlockBytes; at < bytes; at += threads * kBlockBytes) {
      const auto piece =
          std::span(from).first(static_cast<size_t>(std::min(kBlockBytes, bytes - at)));
      TETRAD_CHECK(device.Write(memory.id, at, piece).ok());
    }
  };
  const Instant began = SteadyNow();
  {
    std::vector<std::jthread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back(copy, t);
    copy(0);
  }
  const double seconds = 1e-9 * static_cast<double>(SteadyNow() - began);
  TETRAD_RETURN_IF_ERROR(device.Free(memory.id));
  return seconds;
}

}  // namespace

DeviceUnderTest CpuUnderTest() {
  return {.make = [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
            return CpuDevice::Create({.measure_rates = false}, std::move(wake));
          },
          .copy = "memcpy by the same threads",
          .copy_seconds = &CopySeconds};
}

}  // namespace tetrad
