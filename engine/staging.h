// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Staging: a plan's fixed device memory for the operands of inline requests.
//
// A set holds every operand of one request and a binding over it. A request
// checks a set out, uses it alone, and gives it back by dropping the lease;
// sets stay with their plan for the next request, so that in steady state
// nothing is allocated or bound. All sets together are held to a byte budget.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/plan.h"
#include "engine/support/byte_budget.h"
#include "engine/weights.h"

namespace tetrad {

struct Timings {
  int64_t queued_ns = 0;
  int64_t launch_ns = 0;
  int64_t device_ns = 0;
  int64_t total_ns = 0;
};

struct StagingSet {
  Allocation memory;
  OperandBlocks operands;  // b and b_scales are those of `weights`
  BindingId binding = BindingId::kNone;
  std::shared_ptr<const WeightsVersion> weights;
};

class PlanEntry;

// Exclusive use of one set; movable; returns it when destroyed.
class StagingLease {
 public:
  StagingLease() = default;
  StagingLease(std::shared_ptr<PlanEntry> entry, std::unique_ptr<StagingSet> set);
  StagingLease(StagingLease&&) noexcept = default;
  StagingLease& operator=(StagingLease&& other) noexcept;
  ~StagingLease() { Return(); }

  const Plan& plan() const;
  const StagingSet& set() const { return *set_; }
  Device& device() const;

 private:
  void Return();
  std::shared_ptr<PlanEntry> entry_;
  std::unique_ptr<StagingSet> set_;
};

// A cached plan with its staging sets. Destroyed with its last holder, cache
// or lease, when no set is in use; frees the sets. Thread-safe.
class PlanEntry : public std::enable_shared_from_this<PlanEntry> {
 public:
  PlanEntry(Device& device, ByteBudget& budget, Plan plan);
  ~PlanEntry();

  const Plan& plan() const { return *plan_; }
  std::shared_ptr<const Plan> shared_plan() const { return plan_; }
  // A set bound to `weights`, whose shapes must be the plan's.
  // RESOURCE_EXHAUSTED when budget or device memory is used up, INVALID_ARGUMENT
  // if the budget could never hold a set.
  absl::StatusOr<StagingLease> CheckOut(std::shared_ptr<const WeightsVersion> weights);
  // Frees sets not in use; returns the bytes freed.
  int64_t ReleaseIdle();
  // Unbinds idle sets from weights that were dropped or replaced, so that a
  // cached binding does not keep their memory.
  void ReleaseStaleWeights();

 private:
  friend class StagingLease;
  void Return(std::unique_ptr<StagingSet> set);
  // Unbinds the set from weights that no name resolves to; they are the
  // caller's, whose last hold on gigabytes must not end under a lock.
  std::shared_ptr<const WeightsVersion> TakeIfRetired(StagingSet& set);
  absl::StatusOr<std::unique_ptr<StagingSet>> MakeSet();
  absl::Status BindTo(StagingSet& set, std::shared_ptr<const WeightsVersion> weights);
  void FreeSet(StagingSet& set);

  Device& device_;
  ByteBudget& budget_;
  const std::shared_ptr<const Plan> plan_;
  OperandBlocks template_;  // blocks of a set, without allocation
  int64_t set_bytes_ = 0;   // of the allocation of a set
  std::mutex mutex_;
  std::vector<std::unique_ptr<StagingSet>> idle_;  // guarded by mutex_
};

}  // namespace tetrad
