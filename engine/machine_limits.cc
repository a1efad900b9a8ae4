// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/machine_limits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

// The text after "0::", e.g. /system.slice/tetradd.service; "/" if there is none
// or it lies outside of what this process sees.
std::string GroupPath(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    return line.find("/..") == std::string::npos ? line.substr(3) : "/";
  }
  return "/";
}

// "max", "150000", or "150000 100000": quota and period. Nothing for no limit.
std::optional<double> ReadLimit(const std::string& path, double default_period) {
  std::ifstream file(path);
  std::string quota, period;
  file >> quota >> period;
  double limit = 0;
  double of = default_period;
  if (!absl::SimpleAtod(quota, &limit) || !std::isfinite(limit) || limit <= 0) return std::nullopt;
  if (!period.empty() && (!absl::SimpleAtod(period, &of) || !(of > 0))) return std::nullopt;
  return std::min(limit / of, 0x1p62);
}

template <typename T, typename U>
void TakeLess(std::optional<T>& least, const std::optional<U>& value) {
  if (value.has_value() && (!least.has_value() || *value < *least)) least = static_cast<T>(*value);
}

int AllowedProcessors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max<int>(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  std::string group = GroupPath(root);
  while (group.ends_with('/')) group.pop_back();
  for (;;) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", group);
    TakeLess(limits.processors, ReadLimit(folder + "/cpu.max", 100'000));
    // Beyond 2^53 a byte more or less is lost; no machine has so many.
    TakeLess(limits.memory_bytes, ReadLimit(folder + "/memory.max", 1));
    if (group.empty()) return limits;
    group.erase(group.rfind('/'));
  }
}

MachineLimits ReadMachineLimits(const std::string& root) {
  const CgroupLimits cgroup = ReadCgroupLimits(root);
  MachineLimits limits;
  limits.threads = AllowedProcessors();
  if (cgroup.processors.has_value()) {
    // A started processor counts: with less, its share would lie idle.
    limits.threads =
        static_cast<int>(std::clamp<double>(std::ceil(*cgroup.processors), 1, limits.threads));
  }
  limits.memory_bytes = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  if (cgroup.memory_bytes.has_value()) {
    limits.memory_bytes = std::min(limits.memory_bytes, *cgroup.memory_bytes);
  }
  return limits;
}

}  // namespace tetrad
