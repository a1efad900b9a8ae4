// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Execution: one request from its admission until its answer; ExecutionSlots
// keeps them, and takes them again, so that in steady state none is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "engine/block_operands.h"
#include "engine/executed.h"
#include "engine/executor.h"
#include "engine/staging.h"

namespace tetrad {

// Names a running Execute() for Cancel().
enum class ExecutionId : uint64_t { kNone = 0 };

struct Execution {
  Launch launch;
  void* owner = nullptr;  // whose execution it is
  StagingLease staging;
  // Blocks the launch uses: their memory stays until it has completed.
  BlockHolds blocks;
  absl::AnyInvocable<void(absl::StatusOr<Executed>)> done;

 private:
  friend class ExecutionSlots;
  uint32_t slot_ = 0;
  uint32_t uses_ = 0;  // odd: taken
};

// Thread-safe.
class ExecutionSlots {
 public:
  // Empty; the caller's until Put().
  Execution& Take();
  void Put(Execution& execution);
  ExecutionId id(const Execution& execution) const {
    return ExecutionId{uint64_t{execution.uses_} << 32 | execution.slot_};
  }
  // Calls `act` with the execution if it is still taken, and keeps it from
  // being put back meanwhile.
  template <typename Act>
  void IfTaken(ExecutionId id, Act act) {
    const uint64_t value = static_cast<uint64_t>(id);
    const size_t slot = static_cast<uint32_t>(value);
    std::lock_guard lock(mutex_);
    if (slot < slots_.size() && slots_[slot]->uses_ == value >> 32 && slots_[slot]->uses_ % 2 == 1)
      act(*slots_[slot]);
  }

 private:
  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<Execution>> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tetrad
