// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What holds in a world when nothing is under way, and how it ends.
#include <algorithm>
#include <utility>

#include "engine/simulation/world.h"

namespace tetrad::simulation {

void World::Quiet() {
  if (Pending() > 0 || !held_.empty() || lossy()) return;
  for (int i = 0; i < 8 && housekeep_woken_; ++i) Housekeep();
  int64_t block_bytes = 0;
  for (const Block& block : blocks_) {
    if (block.named) block_bytes += static_cast<int64_t>(block.bytes.size());
  }
  const EngineStats stats = engine_->Stats();
  Promise(stats.in_flight == 0, "nothing is in flight when all was answered", stats.in_flight);
  Promise(stats.reclaimable == 0, "what was let go of comes back", stats.reclaimable);
  Promise(stats.pool.wholes == static_cast<int64_t>(weights_.size() + uploads_.size()),
          "memory of weights without a name comes back", stats.pool.wholes);
  Promise(stats.block_bytes == block_bytes, "memory of freed blocks comes back", stats.block_bytes);
  coverage_.Count(Seen::kQuietAndBalanced);
}

void World::Drain() {
  for (int i = 0; i < 2000 && !trace_.failed(); ++i) {
    if (step_woken_ || step_due_ <= now_) {
      Step();
    } else if (std::any_of(device_->running().begin(), device_->running().end(),
                           [&](const auto& launch) {
                             return device_->CanComplete(&launch - device_->running().data());
                           })) {
      CompleteLaunch();
    } else if (Pending() == 0) {
      return;
    } else {
      Promise(step_due_ != kNever, "no request waits for ever");
      now_ = std::max(now_, step_due_);
    }
  }
}

void World::End() {
  draining_ = true;
  faults_ = false;
  if (random_.OneIn(3)) Close();
  while (!held_.empty()) ReleaseHeld();
  Drain();
  if (!trace_.failed()) Quiet();
  for (size_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].ended) continue;
    Promise(engine_->EndLease(absl::StrCat("client", leases_[i].client), leases_[i].name).ok(),
            "a lease can be ended");
    EndLeaseInModel(i);
  }
  for (Handle& handle : handles_) {
    if (!std::exchange(handle.live, false)) continue;
    Promise(engine_->Release(absl::StrCat("client", handle.client), handle.name).ok(),
            "a handle can be released");
  }
  while (!uploads_.empty()) Drop(uploads_.back().name);
  while (!weights_.empty()) Drop(std::string(weights_.begin()->first));
  if (trace_.failed()) return;
  Settle();
  Quiet();
  const EngineStats stats = engine_->Stats();
  if (!lossy()) {
    Promise(stats.block_bytes == 0 && stats.blocks == 0, "no block is left", stats.block_bytes);
    Promise(stats.pool.whole_bytes == 0, "no weights are left", stats.pool.whole_bytes);
    Promise(stats.pool.block_bytes == stats.staging_bytes, "only staging is left",
            stats.pool.block_bytes - stats.staging_bytes);
  }
  if (stats.plan_evictions > 0) coverage_.Count(Seen::kEvicted);
  if (!closed_) Close();
  Execute(false);
  Drain();
  int64_t launches = 0;
  for (const int64_t outcome : engine_->Stats().outcomes) launches += outcome;
  Promise(launches == order_, "each launch has one outcome", launches - order_);
  Promise(engine_->Stats().outcomes[static_cast<size_t>(LaunchOutcome::kDone)] == done_launches_,
          "what was answered is what was done");
  for (const auto& request : requests_) {
    Promise(request->answers == 1, "each request is answered once", request->answers);
  }
  Promise(engine_->idle(), "the engine is idle at its end");
}

}  // namespace tetrad::simulation
