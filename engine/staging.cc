// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/staging.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int64_t kOperandSpacing = 256;

}  // namespace

StagingLease::StagingLease(std::shared_ptr<PlanEntry> entry, std::unique_ptr<StagingSet> set)
    : entry_(std::move(entry)), set_(std::move(set)) {}

StagingLease& StagingLease::operator=(StagingLease&& other) noexcept {
  Return();
  entry_ = std::move(other.entry_);
  set_ = std::move(other.set_);
  return *this;
}

const Plan& StagingLease::plan() const { return entry_->plan(); }
Device& StagingLease::device() const { return entry_->device_; }

void StagingLease::Return() {
  if (set_ != nullptr) entry_->Return(std::move(set_));
  entry_.reset();
}

PlanEntry::PlanEntry(Device& device, ByteBudget& budget, Plan plan)
    : device_(device), budget_(budget), plan_(std::make_shared<const Plan>(std::move(plan))) {
  const Signature& signature = plan_->signature;
  const OperandLayout& layout = plan_->layout;
  const auto place = [this](int64_t bytes) {
    const BlockRef block{AllocationId::kNone, set_bytes_, bytes};
    set_bytes_ += RoundUp(bytes, kOperandSpacing);
    return block;
  };
  template_.a = place(layout.a_bytes);
  template_.a_scales = place(layout.a_scale_bytes);
  template_.c = place(layout.c_bytes);
  template_.alpha = place(static_cast<int64_t>(signature.groups.size() * sizeof(float)));
  template_.row_scale = place(signature.row_scale ? layout.rows * int64_t{sizeof(float)} : 0);
  template_.m_values = place(layout.m_values * int64_t{sizeof(int32_t)});
}

PlanEntry::~PlanEntry() { ReleaseIdle(); }

absl::StatusOr<std::unique_ptr<StagingSet>> PlanEntry::MakeSet() {
  // No other set gives way for what can never fit, and no retry helps.
  if (set_bytes_ > budget_.limit_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("staging_bytes: inline operands of this plan take ", set_bytes_,
                     " bytes, the limit is ", budget_.limit_bytes()));
  }
  if (!budget_.Take(set_bytes_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "staging_bytes: ", set_bytes_, " bytes wanted, ",
        budget_.limit_bytes() - budget_.used_bytes(), " of ", budget_.limit_bytes(), " left"));
  }
  auto memory = device_.Allocate(set_bytes_);
  if (!memory.ok()) {
    budget_.Give(set_bytes_);
    return memory.status();
  }
  auto set = std::make_unique<StagingSet>();
  set->memory = *memory;
  set->operands = template_;
  for (BlockRef* block :
       {&set->operands.a, &set->operands.a_scales, &set->operands.c, &set->operands.alpha,
        &set->operands.row_scale, &set->operands.m_values}) {
    block->allocation = memory->id;
  }
  return set;
}

absl::Status PlanEntry::BindTo(StagingSet& set, std::shared_ptr<const WeightsVersion> weights) {
  if (set.weights == weights) return absl::OkStatus();
  if (set.binding != BindingId::kNone) {
    TETRAD_CHECK(device_.Unbind(std::exchange(set.binding, BindingId::kNone)).ok());
    set.weights.reset();
  }
  set.operands.b = weights->codes();
  set.operands.b_scales = weights->scales();
  TETRAD_ASSIGN_OR_RETURN(set.binding, device_.Bind(plan_, set.operands));
  set.weights = std::move(weights);
  return absl::OkStatus();
}

absl::StatusOr<StagingLease> PlanEntry::CheckOut(std::shared_ptr<const WeightsVersion> weights) {
  std::unique_ptr<StagingSet> set;
  {
    std::lock_guard lock(mutex_);
    // A set already bound to these weights saves a binding.
    for (auto it = idle_.rbegin(); it != idle_.rend() && set == nullptr; ++it) {
      if ((*it)->weights == weights) {
        set = std::move(*it);
        idle_.erase(std::next(it).base());
        break;
      }
    }
    if (set == nullptr && !idle_.empty()) {
      set = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (set == nullptr) {
    TETRAD_ASSIGN_OR_RETURN(set, MakeSet());
  }
  if (absl::Status status = BindTo(*set, std::move(weights)); !status.ok()) {
    FreeSet(*set);
    return status;
  }
  return StagingLease(shared_from_this(), std::move(set));
}

void PlanEntry::Return(std::unique_ptr<StagingSet> set) {
  std::shared_ptr<const WeightsVersion> retired;  // freed after the lock is gone
  std::lock_guard lock(mutex_);
  retired = TakeIfRetired(*set);
  idle_.push_back(std::move(set));
}

std::shared_ptr<const WeightsVersion> PlanEntry::TakeIfRetired(StagingSet& set) {
  if (set.weights == nullptr || !set.weights->retired()) return nullptr;
  TETRAD_CHECK(device_.Unbind(std::exchange(set.binding, BindingId::kNone)).ok());
  return std::exchange(set.weights, nullptr);
}

int64_t PlanEntry::ReleaseIdle() {
  std::vector<std::unique_ptr<StagingSet>> idle;
  {
    std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
  for (const auto& set : idle) FreeSet(*set);
  return static_cast<int64_t>(idle.size()) * set_bytes_;
}

void PlanEntry::ReleaseStaleWeights() {
  std::vector<std::shared_ptr<const WeightsVersion>> retired;  // freed after the lock is gone
  std::lock_guard lock(mutex_);
  for (const auto& set : idle_) retired.push_back(TakeIfRetired(*set));
}

void PlanEntry::FreeSet(StagingSet& set) {
  if (set.binding != BindingId::kNone) TETRAD_CHECK(device_.Unbind(set.binding).ok());
  TETRAD_CHECK(device_.Free(set.memory.id).ok());
  budget_.Give(set_bytes_);
}

}  // namespace tetrad
