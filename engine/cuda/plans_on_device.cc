// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/plans_on_device.h"

#include <utility>

namespace tetrad::cuda {

absl::StatusOr<std::shared_ptr<const PlanOnDevice>> PlansOnDevice::Get(
    const std::shared_ptr<const Plan>& plan, const uint8_t* b, const uint8_t* b_scales) {
  const auto find = [&]() -> std::shared_ptr<const PlanOnDevice> {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(plan.get());
    // A plan that is gone may have lain where this one does.
    if (at == entries_.end() || at->second.plan.lock() != plan) return nullptr;
    return at->second.on_device;
  };
  if (auto found = find()) return found;
  std::lock_guard building(building_);
  if (auto found = find()) return found;
  {
    // First: their memory may be what is lacking.
    std::lock_guard lock(mutex_);
    RemoveGone();
  }
  TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<const PlanOnDevice> made,
                          PlanOnDevice::Place(*plan, library_, memory_, multiprocessors_));
  TETRAD_RETURN_IF_ERROR(proof_.Prove(*plan, *made, b, b_scales));
  std::lock_guard lock(mutex_);
  ++proofs_;
  entries_.insert_or_assign(plan.get(), Entry{plan, made});
  return made;
}

void PlansOnDevice::RemoveGone() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.plan.expired(); });
}

PlansOnDevice::Stats PlansOnDevice::stats() {
  std::lock_guard lock(mutex_);
  RemoveGone();
  Stats stats{.plans = static_cast<int64_t>(entries_.size()), .proofs = proofs_};
  for (const auto& [plan, entry] : entries_) stats.table_bytes += entry.on_device->table_bytes();
  return stats;
}

}  // namespace tetrad::cuda
