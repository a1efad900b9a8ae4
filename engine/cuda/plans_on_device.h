// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlansOnDevice: what of a plan lies in device memory, made once a plan and kept
// as long as the plan lives: its tables of groups and tiles, and that its
// replays were proven.
//
// Thread-safe. One caller makes a plan ready while others that want the same
// wait; plans are made ready one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "engine/cuda/kernel_library.h"
#include "engine/cuda/own_memory.h"
#include "engine/cuda/plan_on_device.h"
#include "engine/cuda/replay_proof.h"
#include "engine/plan.h"

namespace tetrad::cuda {

class PlansOnDevice {
 public:
  PlansOnDevice(const KernelLibrary& library, OwnMemory& memory, ReplayProof& proof,
                int32_t multiprocessors)
      : library_(library), memory_(memory), proof_(proof), multiprocessors_(multiprocessors) {}

  // `b` and `b_scales`: weights for the proof, which reads them.
  absl::StatusOr<std::shared_ptr<const PlanOnDevice>> Get(const std::shared_ptr<const Plan>& plan,
                                                          const uint8_t* b,
                                                          const uint8_t* b_scales);

  struct Stats {
    int64_t plans = 0;
    int64_t table_bytes = 0;
    int64_t proofs = 0;
  };
  // Lets go of plans that are gone.
  Stats stats();

 private:
  struct Entry {
    std::weak_ptr<const Plan> plan;
    std::shared_ptr<const PlanOnDevice> on_device;
  };
  // Needs mutex_.
  void RemoveGone();

  const KernelLibrary& library_;
  OwnMemory& memory_;
  ReplayProof& proof_;
  const int32_t multiprocessors_;
  std::mutex building_;  // before mutex_
  std::mutex mutex_;
  std::unordered_map<const Plan*, Entry> entries_;  // guarded by mutex_
  int64_t proofs_ = 0;                              // guarded by mutex_
};

}  // namespace tetrad::cuda
