// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stream_slots.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

// Messages beyond this give their memory back at once.
constexpr size_t kKeptBytes = 4 << 10;

template <typename Message>
void Empty(Message& message) {
  if (message.ByteSizeLong() > kKeptBytes) {
    Message().Swap(&message);
  } else {
    message.Clear();
  }
}

}  // namespace

StreamSlot& StreamSlots::Take(v1::ExecuteStreamRequest& request) {
  TETRAD_CHECK(!full());
  ++used_;
  if (free_.empty()) free_.push_back(all_.emplace_back(std::make_unique<StreamSlot>()).get());
  StreamSlot& slot = *free_.back();
  free_.pop_back();
  slot.request.Swap(&request);
  return slot;
}

bool StreamSlots::Name(StreamSlot& slot) {
  slot.has_id = by_id_.emplace(slot.request.id(), &slot).second;
  return slot.has_id;
}

void StreamSlots::Forget(StreamSlot& slot) {
  if (slot.has_id) by_id_.erase(slot.answer.id());  // the request's may be gone
  slot.has_id = false;
}

StreamSlot* StreamSlots::Find(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<StreamSlot*> StreamSlots::Named() const {
  std::vector<StreamSlot*> slots;
  for (const auto& [id, slot] : by_id_) slots.push_back(slot);
  return slots;
}

void StreamSlots::DropRequest(StreamSlot& slot) { Empty(slot.request); }

void StreamSlots::Free(StreamSlot& slot) {
  Forget(slot);
  Empty(slot.request);
  Empty(slot.answer);
  if (slot.task.has_value()) slot.task->ReturnBytes();
  free_.push_back(&slot);
  --used_;
}

}  // namespace tetrad
