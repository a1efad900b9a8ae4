// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/reclaimer.h"

namespace tetrad {

void Reclaimer::Queue(Reclaimable* object) {
  {
    std::lock_guard lock(mutex_);
    object->next_ = first_;
    first_ = object;
    ++queued_;
  }
  wake_();
}

int64_t Reclaimer::Step() {
  const int64_t before = destroyed_.load();
  std::lock_guard stepping(stepping_);
  Reclaimable* object;
  {
    std::lock_guard lock(mutex_);
    object = std::exchange(first_, nullptr);
    queued_ = 0;
  }
  while (object != nullptr) {
    Reclaimable* const next = object->next_;
    object->destroy_(object);
    object = next;
    ++destroyed_;
  }
  return destroyed_.load() - before;
}

int64_t Reclaimer::queued() const {
  std::lock_guard lock(mutex_);
  return queued_;
}

}  // namespace tetrad
