// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BindingTable: the ids of a device's bindings, and who uses each right now.
//
// Ids carry a use count of their slot: a stale one is refused with ABORTED. A
// binding that is launched is neither removed nor rebound, one that is being
// rebound is not launched. Not thread-safe: the device's lock guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

template <typename Binding>
class BindingTable {
 public:
  // Takes the binding only if it succeeds (it may lack memory).
  BindingId Add(std::unique_ptr<Binding>& binding) {
    if (free_.empty()) {
      // Room first for all to be free at once, so that Remove() needs none.
      free_.reserve(slots_.size() + 1);
      slots_.emplace_back();
      free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    ++slot.uses;
    slot.binding = std::move(binding);
    return static_cast<BindingId>(uint64_t{slot.uses} << 32 | index);
  }

  absl::StatusOr<std::unique_ptr<Binding>> Remove(BindingId id) {
    TETRAD_ASSIGN_OR_RETURN(Slot* const slot, FindIdle(id));
    ++slot->uses;
    free_.push_back(Index(id));
    return std::move(slot->binding);
  }

  // Any that are left, at the end of the device.
  std::vector<std::unique_ptr<Binding>> TakeAll() {
    std::vector<std::unique_ptr<Binding>> all;
    for (Slot& slot : slots_) {
      if (slot.binding != nullptr) all.push_back(std::move(slot.binding));
    }
    return all;
  }

  // Until EndRebind() the binding is the caller's alone.
  absl::StatusOr<Binding*> BeginRebind(BindingId id) {
    TETRAD_ASSIGN_OR_RETURN(Slot* const slot, FindIdle(id));
    slot->rebinding = true;
    return slot->binding.get();
  }
  void EndRebind(BindingId id) { slots_[Index(id)].rebinding = false; }

  // One launch more; EndLaunch() of its Index() ends it.
  absl::StatusOr<Binding*> BeginLaunch(BindingId id) {
    TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
    if (slot->rebinding) return ReasonError(Reason::kBusy, "binding: it is being bound");
    ++slot->launches;
    return slot->binding.get();
  }
  void EndLaunch(uint32_t index) { --slots_[index].launches; }
  static uint32_t Index(BindingId id) { return static_cast<uint32_t>(static_cast<uint64_t>(id)); }

  // Null for an id that leads nowhere.
  const Binding* Get(BindingId id) {
    const auto slot = Find(id);
    return slot.ok() ? (*slot)->binding.get() : nullptr;
  }

 private:
  struct Slot {
    uint32_t uses = 0;  // odd: live
    int launches = 0;   // queued or running
    bool rebinding = false;
    std::unique_ptr<Binding> binding;
  };

  absl::StatusOr<Slot*> Find(BindingId id) {
    const size_t index = Index(id);
    if (index >= slots_.size() || slots_[index].uses != static_cast<uint64_t>(id) >> 32 ||
        slots_[index].uses % 2 == 0) {
      return ReasonError(Reason::kStaleHandle, "binding: the id is stale or was never given out");
    }
    return &slots_[index];
  }

  absl::StatusOr<Slot*> FindIdle(BindingId id) {
    TETRAD_ASSIGN_OR_RETURN(Slot* const slot, Find(id));
    if (slot->launches > 0) return ReasonError(Reason::kBusy, "binding: a launch uses it");
    if (slot->rebinding) return ReasonError(Reason::kBusy, "binding: it is being bound");
    return slot;
  }

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tetrad
