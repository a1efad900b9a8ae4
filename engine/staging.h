// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Staging: a plan's fixed device memory for what requests bring inline.
//
// A set holds the operands that one request sends and a binding over them. A
// request checks a set out, uses it alone, and gives it back by dropping the
// lease; sets stay with their plan for the next request, so that in steady
// state nothing is allocated, and a binding is at most pointed elsewhere. All
// sets together are held to a byte budget.
//
// There are two forms: all operands in the set; or activations and output in
// blocks of the client, and in the set only the small ones.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/plan.h"
#include "engine/pool.h"
#include "engine/reclaimer.h"
#include "engine/support/byte_budget.h"
#include "engine/weights.h"

namespace tetrad {

struct Timings {
  int64_t queued_ns = 0;
  int64_t launch_ns = 0;
  int64_t device_ns = 0;
  int64_t total_ns = 0;
};

enum class StagingForm : uint8_t { kInline = 0, kBlocks = 1 };

struct StagingSet {
  StagingForm form = StagingForm::kInline;
  BlockRef memory;
  OperandBlocks own;       // the operands that have their place in the set
  OperandBlocks operands;  // as bound: own ones, blocks, and those of `weights`
  BindingId binding = BindingId::kNone;
  std::shared_ptr<const WeightsVersion> weights;
  // As they are in device memory, so that equal ones need no copy.
  std::vector<float> alpha;
  bool alpha_written = false;
  std::unique_ptr<StagingSet> next;  // among the idle ones
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
  // alpha_g = fl32(alpha_A[g] * alpha_B[g]), alpha_A given or 1, to the device.
  absl::Status WriteAlpha(std::span<const float> alpha_a);

 private:
  friend class PlanEntry;
  void Return();
  std::shared_ptr<PlanEntry> entry_;
  std::unique_ptr<StagingSet> set_;
};

// A cached plan with its staging sets. Destroyed with its last holder, cache
// or lease, when no set is in use; frees the sets. Thread-safe.
class PlanEntry : public Reclaimable, public std::enable_shared_from_this<PlanEntry> {
 public:
  PlanEntry(Device& device, Pool& pool, ByteBudget& budget, Plan plan);
  ~PlanEntry();

  const Plan& plan() const { return *plan_; }
  std::shared_ptr<const Plan> shared_plan() const { return plan_; }
  // A set bound to `weights`, whose shapes must be the plan's, and where
  // `blocks` is given to its operands, which replace those of the set.
  // RESOURCE_EXHAUSTED when budget or device memory is used up, INVALID_ARGUMENT
  // if the budget could never hold a set.
  absl::StatusOr<StagingLease> CheckOut(std::shared_ptr<const WeightsVersion> weights,
                                        const OperandBlocks* blocks = nullptr);
  // Frees sets not in use; returns the bytes freed.
  int64_t ReleaseIdle();
  // Unbinds idle sets from weights that were dropped or replaced, so that a
  // cached binding does not keep their memory.
  void ReleaseStaleWeights();
  // Unbinds idle sets from these allocations, which requests that are over used.
  void UnbindIdle(std::span<const AllocationId> allocations);

 private:
  friend class StagingLease;
  // What a set of one form consists of.
  struct Form {
    OperandBlocks places;  // offsets within a set
    int64_t bytes = 0;
    std::unique_ptr<StagingSet> idle;  // a list, last used first; guarded by mutex_
  };
  Form& form(StagingForm form) { return forms_[static_cast<size_t>(form)]; }
  void Place(Form& form, BlockRef OperandBlocks::*operand, int64_t bytes);
  std::unique_ptr<StagingSet> TakeIdle(StagingForm which, const OperandBlocks* blocks,
                                       const std::shared_ptr<const WeightsVersion>& weights);
  void Return(std::unique_ptr<StagingSet> set);
  // Unbinds the set from weights that no name resolves to.
  void DropIfRetired(StagingSet& set);
  absl::StatusOr<std::unique_ptr<StagingSet>> MakeSet(StagingForm which);
  absl::Status BindTo(StagingSet& set, std::shared_ptr<const WeightsVersion> weights,
                      const OperandBlocks* blocks);
  void Unbind(StagingSet& set);
  void FreeSet(StagingSet& set);

  Device& device_;
  Pool& pool_;
  ByteBudget& budget_;
  const std::shared_ptr<const Plan> plan_;
  std::mutex mutex_;
  std::array<Form, 2> forms_;
};

}  // namespace tetrad
