// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/staging.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
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

absl::Status StagingLease::WriteAlpha(std::span<const float> alpha_a) {
  const WeightsVersion& weights = *set_->weights;
  bool differs = !set_->alpha_written;
  for (size_t g = 0; g < set_->alpha.size(); ++g) {
    const float alpha = (alpha_a.empty() ? 1.0f : alpha_a[g]) * weights.alpha(g);
    // By bits: the sign of a zero shows in the result.
    differs |= std::bit_cast<uint32_t>(set_->alpha[g]) != std::bit_cast<uint32_t>(alpha);
    set_->alpha[g] = alpha;
  }
  if (!differs) return absl::OkStatus();
  set_->alpha_written = false;
  const BlockRef& to = set_->operands.alpha;
  TETRAD_RETURN_IF_ERROR(
      entry_->device_.Write(to.allocation, to.offset, std::as_bytes(std::span(set_->alpha))));
  set_->alpha_written = true;
  return absl::OkStatus();
}

PlanEntry::PlanEntry(Device& device, Pool& pool, ByteBudget& budget, Plan plan)
    : device_(device),
      pool_(pool),
      budget_(budget),
      plan_(std::make_shared<const Plan>(std::move(plan))) {
  const Signature& signature = plan_->signature;
  const OperandLayout& layout = plan_->layout;
  for (const StagingForm which : {StagingForm::kInline, StagingForm::kBlocks}) {
    Form& form = this->form(which);
    Place(form, &OperandBlocks::alpha,
          static_cast<int64_t>(signature.groups.size() * sizeof(float)));
    Place(form, &OperandBlocks::row_scale,
          signature.row_scale ? layout.rows * int64_t{sizeof(float)} : 0);
    Place(form, &OperandBlocks::m_values, layout.m_values * int64_t{sizeof(int32_t)});
    if (which == StagingForm::kBlocks) continue;
    Place(form, &OperandBlocks::a, layout.a_bytes);
    Place(form, &OperandBlocks::a_scales, layout.a_scale_bytes);
    Place(form, &OperandBlocks::c, layout.c_bytes);
  }
}

PlanEntry::~PlanEntry() { ReleaseIdle(); }

void PlanEntry::Place(Form& form, BlockRef OperandBlocks::*operand, int64_t bytes) {
  form.places.*operand = {AllocationId::kNone, form.bytes, bytes};
  form.bytes += RoundUp(bytes, kOperandSpacing);
}

absl::StatusOr<std::unique_ptr<StagingSet>> PlanEntry::MakeSet(StagingForm which) {
  const Form& form = this->form(which);
  // No other set gives way for what can never fit, and no retry helps.
  if (form.bytes > budget_.limit_bytes()) {
    return FieldError({"inline_operands", absl::StrCat(form.bytes, " bytes"),
                       absl::StrCat("at most ", budget_.limit_bytes(), " bytes")},
                      Reason::kMessageTooLarge,
                      absl::StrCat("staging_bytes: inline operands of this plan take ", form.bytes,
                                   " bytes, the limit is ", budget_.limit_bytes()));
  }
  auto set = std::make_unique<StagingSet>();
  set->form = which;
  set->alpha.resize(plan_->signature.groups.size());
  if (!budget_.Take(form.bytes)) {
    return ReasonError(Reason::kDeviceMemory,
                       absl::StrCat("staging_bytes: ", form.bytes, " bytes wanted, ",
                                    budget_.limit_bytes() - budget_.used_bytes(), " of ",
                                    budget_.limit_bytes(), " left"));
  }
  absl::Cleanup give_back = [&] { budget_.Give(form.bytes); };
  TETRAD_ASSIGN_OR_RETURN(set->memory, pool_.Allocate(form.bytes));
  std::move(give_back).Cancel();
  set->own = form.places;
  for (BlockRef OperandBlocks::*operand :
       {&OperandBlocks::a, &OperandBlocks::a_scales, &OperandBlocks::c, &OperandBlocks::alpha,
        &OperandBlocks::row_scale, &OperandBlocks::m_values}) {
    (set->own.*operand).allocation = set->memory.allocation;
    (set->own.*operand).offset += set->memory.offset;
  }
  return set;
}

absl::Status PlanEntry::BindTo(StagingSet& set, std::shared_ptr<const WeightsVersion> weights,
                               const OperandBlocks* blocks) {
  OperandBlocks wanted = set.own;
  if (blocks != nullptr) {
    for (BlockRef OperandBlocks::*operand :
         {&OperandBlocks::a, &OperandBlocks::a_scales, &OperandBlocks::c, &OperandBlocks::row_scale,
          &OperandBlocks::m_values}) {
      if ((blocks->*operand).bytes > 0) wanted.*operand = blocks->*operand;
    }
  }
  wanted.b = weights->codes();
  wanted.b_scales = weights->scales();
  if (set.binding == BindingId::kNone) {
    TETRAD_ASSIGN_OR_RETURN(set.binding, device_.Bind(plan_, wanted));
  } else if (set.operands != wanted) {
    TETRAD_RETURN_IF_ERROR(device_.Rebind(set.binding, wanted));
  }
  set.operands = wanted;
  set.weights = std::move(weights);
  return absl::OkStatus();
}

std::unique_ptr<StagingSet> PlanEntry::TakeIdle(
    StagingForm which, const OperandBlocks* blocks,
    const std::shared_ptr<const WeightsVersion>& weights) {
  const auto fits = [&](const StagingSet& set) {
    return set.weights == weights &&
           (blocks == nullptr || (set.operands.a == blocks->a && set.operands.c == blocks->c));
  };
  // A set that is bound already as it should be saves a binding; it is not
  // worth a long search.
  constexpr int kLookAt = 8;
  std::lock_guard lock(mutex_);
  std::unique_ptr<StagingSet>* place = &form(which).idle;
  for (int i = 0; i < kLookAt && *place != nullptr && !fits(**place); ++i) place = &(*place)->next;
  if (*place == nullptr || !fits(**place)) place = &form(which).idle;
  std::unique_ptr<StagingSet> set = std::move(*place);
  if (set != nullptr) *place = std::move(set->next);
  return set;
}

absl::StatusOr<StagingLease> PlanEntry::CheckOut(std::shared_ptr<const WeightsVersion> weights,
                                                 const OperandBlocks* blocks) {
  const StagingForm which = blocks == nullptr ? StagingForm::kInline : StagingForm::kBlocks;
  std::unique_ptr<StagingSet> set = TakeIdle(which, blocks, weights);
  if (set == nullptr) {
    TETRAD_ASSIGN_OR_RETURN(set, MakeSet(which));
  }
  // From here on the lease gives it back, whatever happens.
  StagingLease lease(shared_from_this(), std::move(set));
  const absl::Status bound = BindTo(*lease.set_, std::move(weights), blocks);
  if (bound.ok()) return lease;
  // One that is bound to nothing would be found idle by whoever makes room for
  // another try, who would free and make it without end.
  if (lease.set_->binding == BindingId::kNone) FreeSet(*std::exchange(lease.set_, nullptr));
  return bound;
}

void PlanEntry::Return(std::unique_ptr<StagingSet> set) {
  // What a lost device still does with it is not known: nobody uses it again.
  if (pool_.abandoned()) return FreeSet(*set);
  std::lock_guard lock(mutex_);
  DropIfRetired(*set);
  std::unique_ptr<StagingSet>& idle = form(set->form).idle;
  set->next = std::move(idle);
  idle = std::move(set);
}

void PlanEntry::Unbind(StagingSet& set) {
  if (set.binding == BindingId::kNone) return;
  const absl::Status unbound = device_.Unbind(std::exchange(set.binding, BindingId::kNone));
  // Of a lost device nothing is known, and nothing is used again. It may be lost
  // and the executor not have seen it yet.
  TETRAD_CHECK(unbound.ok() || pool_.abandoned() || !device_.health().ok());
}

void PlanEntry::DropIfRetired(StagingSet& set) {
  if (set.weights == nullptr || !set.weights->retired()) return;
  Unbind(set);
  set.weights.reset();
}

int64_t PlanEntry::ReleaseIdle() {
  int64_t bytes = 0;
  for (Form& form : forms_) {
    std::unique_ptr<StagingSet> idle;
    {
      std::lock_guard lock(mutex_);
      idle = std::move(form.idle);
    }
    while (idle != nullptr) {
      bytes += form.bytes;
      FreeSet(*idle);
      idle = std::move(idle->next);
    }
  }
  return bytes;
}

void PlanEntry::ReleaseStaleWeights() {
  std::lock_guard lock(mutex_);
  for (const Form& form : forms_) {
    for (StagingSet* set = form.idle.get(); set != nullptr; set = set->next.get()) {
      DropIfRetired(*set);
    }
  }
}

void PlanEntry::UnbindIdle(std::span<const AllocationId> allocations) {
  const auto names_one = [&](const OperandBlocks& operands) {
    return std::ranges::any_of(allocations, [&](AllocationId id) {
      return operands.a.allocation == id || operands.a_scales.allocation == id ||
             operands.c.allocation == id || operands.row_scale.allocation == id ||
             operands.m_values.allocation == id;
    });
  };
  std::lock_guard lock(mutex_);
  for (StagingSet* set = form(StagingForm::kBlocks).idle.get(); set; set = set->next.get()) {
    if (!names_one(set->operands)) continue;
    Unbind(*set);
    set->weights.reset();
  }
}

void PlanEntry::FreeSet(StagingSet& set) {
  Unbind(set);
  pool_.Free(set.memory);
  budget_.Give(form(set.form).bytes);
}

}  // namespace tetrad
