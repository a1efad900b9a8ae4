// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_source.h"

#include <condition_variable>
#include <mutex>
#include <new>

#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

struct WaitingAsker : PlanCache::Asker {
  WaitingAsker() {
    ready = [](Asker* asker) {
      auto* const self = static_cast<WaitingAsker*>(asker);
      // Under the lock: once it is free, the waiter may be gone.
      std::lock_guard lock(self->mutex);
      self->told = true;
      self->wake.notify_one();
    };
  }
  std::mutex mutex;
  std::condition_variable wake;
  bool told = false;  // guarded by mutex
};

}  // namespace

// Waiters must hear of every end, so not even an exception may pass by.
absl::StatusOr<std::shared_ptr<PlanEntry>> PlanSource::Build(const Signature& canonical) const {
  try {
    return build_(canonical);
  } catch (const std::bad_alloc&) {
    return ReasonError(Reason::kHostMemory, "plan: the host memory to build it is lacking");
  }
}

absl::StatusOr<PlanCache::Found> PlanSource::Get(const PlanKey& key) {
  WaitingAsker asker;
  switch (cache_.Begin(key, asker)) {
    case PlanCache::Turn::kReady:
      break;
    case PlanCache::Turn::kBuild:
      return cache_.Finish(key, Build(key.signature()));
    case PlanCache::Turn::kWait: {
      std::unique_lock lock(asker.mutex);
      asker.wake.wait(lock, [&] { return asker.told; });
      break;
    }
  }
  return std::move(asker.result);
}

}  // namespace tetrad
