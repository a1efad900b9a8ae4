// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Faults (tests only): which call of a simulated driver fails, and how.
//
// Counts every call. Not thread-safe: the machine's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <cuda.h>

#include "engine/cuda/simulated_driver/entry_point.h"

namespace tetrad::cuda::simulated {

class Faults {
 public:
  struct Fault {
    std::optional<EntryPoint> entry;  // none: any that counts
    int64_t calls_left = 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool breaks = false;  // the context, with this call
    bool waits = false;   // only calls that wait count
  };

  void Add(const Fault& fault) { pending_.push_back(fault); }
  void Clear() { pending_.clear(); }
  bool used() const { return pending_.empty(); }
  int64_t calls(EntryPoint entry) const { return calls_[static_cast<size_t>(entry)]; }

  // Counts a call; the fault that it meets, if any.
  std::optional<Fault> Meet(EntryPoint entry);

 private:
  std::array<int64_t, kEntryPoints> calls_{};
  std::vector<Fault> pending_;
};

}  // namespace tetrad::cuda::simulated
