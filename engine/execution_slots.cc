// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/execution_slots.h"

namespace tetrad {

Execution& ExecutionSlots::Take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    // The room first, so that Put() never needs any.
    if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);
    slots_.push_back(std::make_unique<Execution>());
    slots_.back()->slot_ = static_cast<uint32_t>(slots_.size() - 1);
    free_.push_back(slots_.back()->slot_);
  }
  Execution& execution = *slots_[free_.back()];
  free_.pop_back();
  ++execution.uses_;
  return execution;
}

void ExecutionSlots::Put(Execution& execution) {
  // Let go before the lock: the last hold on a plan or block may end here.
  execution.staging = StagingLease();
  for (auto& block : execution.blocks) block.reset();
  execution.done = nullptr;
  std::lock_guard lock(mutex_);
  ++execution.uses_;
  free_.push_back(execution.slot_);
}

}  // namespace tetrad
