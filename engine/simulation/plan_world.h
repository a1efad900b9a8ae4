// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanWorld: the plan cache as a step function, with builders that take their
// time and askers that wait, against a model of what it keeps.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/plan_cache.h"
#include "engine/pool.h"
#include "engine/simulation/coverage.h"
#include "engine/simulation/random.h"
#include "engine/simulation/simulated_device.h"
#include "engine/simulation/trace.h"
#include "engine/support/byte_budget.h"

namespace tetrad::simulation {

class PlanWorld {
 public:
  PlanWorld(uint64_t seed, Trace& trace, Coverage& coverage);
  void Run();

 private:
  struct Asker : PlanCache::Asker {
    int told = 0;
  };
  struct Key {
    explicit Key(Plan p) : plan(std::move(p)), key(plan.signature) {}
    Plan plan;
    PlanKey key;
    std::shared_ptr<PlanEntry> entry;  // while cached
    bool building = false;
    std::vector<std::unique_ptr<Asker>> waiting;
  };
  void Ask(size_t index);
  void Finish(size_t index);
  void Built(size_t index, std::shared_ptr<PlanEntry> entry);
  void Check();
  int64_t CachedBytes() const;
  void Promise(bool kept, const char* promise, int64_t detail = 0);

  Random random_;
  Trace& trace_;
  Coverage& coverage_;
  SimulatedDevice device_;
  Pool pool_;
  ByteBudget budget_{1 << 20};
  std::vector<Key> keys_;
  PlanCache::Limits limits_;
  std::list<size_t> by_use_;  // what must be cached, least recent first
  PlanCache::Stats stats_;    // what must be counted
  std::optional<PlanCache> cache_;
};

}  // namespace tetrad::simulation
