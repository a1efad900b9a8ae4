// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reclaimer: destroys what nobody holds any more, later and elsewhere.
//
// The last hold on gigabytes may end on the executor's thread, or under a
// lock; to return them takes a device long. What Own() hands out is queued
// when its last holder lets go (which cannot fail and allocates nothing), and
// destroyed by Step(), wherever that is called: by the engine's housekeeping,
// or by whoever lacks memory at this moment.
//
// Thread-safe. Outlives what it owns; the destructor destroys what is queued.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace tetrad {

// Base of what a Reclaimer can own.
class Reclaimable {
 private:
  friend class Reclaimer;
  Reclaimable* next_ = nullptr;
  void (*destroy_)(Reclaimable*) = nullptr;
};

class Reclaimer {
 public:
  // `wake` is called when there is something to do for Step().
  explicit Reclaimer(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~Reclaimer() {
    while (Step() > 0) {
    }
  }

  template <typename T>
  std::shared_ptr<T> Own(std::unique_ptr<T> object) {
    object->Reclaimable::destroy_ = [](Reclaimable* o) { delete static_cast<T*>(o); };
    return std::shared_ptr<T>(object.release(), [this](T* o) { Queue(o); });
  }

  // Destroys what is queued, and waits until what another thread destroys at the
  // moment is gone; returns how many objects that was.
  int64_t Step();
  int64_t queued() const;

 private:
  void Queue(Reclaimable* object);

  const std::function<void()> wake_;
  std::mutex stepping_;
  std::atomic<int64_t> destroyed_{0};  // so far
  mutable std::mutex mutex_;
  Reclaimable* first_ = nullptr;  // guarded by mutex_
  int64_t queued_ = 0;            // guarded by mutex_
};

}  // namespace tetrad
