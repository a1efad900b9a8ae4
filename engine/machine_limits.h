// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// MachineLimits: how many threads and how much memory this process may really
// use. In a container the machine says what all of it has; what the process may
// take is in its control group (version 2), where it is killed or throttled
// beyond. A group is bound by its ancestors, too, so the least of all counts.
//
// Reads files and never fails: what is absent or unreadable limits nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tetrad {

struct CgroupLimits {
  std::optional<double> processors;     // cpu.max; may be a fraction
  std::optional<int64_t> memory_bytes;  // memory.max
};

// Of the group named in proc/self/cgroup below `root`, "" for the machine's own.
CgroupLimits ReadCgroupLimits(const std::string& root);

struct MachineLimits {
  int threads = 1;  // processors it may run on, and no more than it may keep busy
  int64_t memory_bytes = 0;
};

MachineLimits ReadMachineLimits(const std::string& root = "");

}  // namespace tetrad
