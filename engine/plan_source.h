// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanSource: a PlanCache with the threads of those who ask: one builds, the
// others wait. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "engine/plan_cache.h"

namespace tetrad {

class PlanSource {
 public:
  // Called without locks, by one thread per signature.
  using Builder = absl::AnyInvocable<absl::StatusOr<std::shared_ptr<PlanEntry>>(
      const Signature& canonical) const>;

  PlanSource(PlanCache::Limits limits, Builder build) : cache_(limits), build_(std::move(build)) {}

  // The plan, built now if need be; blocks while another thread builds it.
  absl::StatusOr<PlanCache::Found> Get(const PlanKey& key);
  const PlanCache& cache() const { return cache_; }

 private:
  absl::StatusOr<std::shared_ptr<PlanEntry>> Build(const Signature& canonical) const;

  PlanCache cache_;
  const Builder build_;
};

}  // namespace tetrad
