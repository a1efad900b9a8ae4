// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/plan_world.h"

#include <algorithm>
#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

constexpr int kPlanEvents = 80;
constexpr int32_t kRows[] = {1, 2, 3, 600, 2000, 9000};  // the last ones make large plans

SimulatedDevice::World Nothing() {
  return {.before = [](SimulatedDevice::Call) { return absl::OkStatus(); },
          .misuse = [](std::string) {},
          .handed_over = [](const SimulatedDevice::HandOver&) {},
          .wake = [] {}};
}

}  // namespace

PlanWorld::PlanWorld(uint64_t seed, Trace& trace, Coverage& coverage)
    : random_(seed),
      trace_(trace),
      coverage_(coverage),
      device_({}, Nothing()),
      pool_(Pool::From(device_), {.chunk_bytes = 4096}) {
  for (const int32_t rows : kRows) {
    auto signature = Canonicalize({.groups = {{rows, 8, 32}}, .device = "simulated"});
    TETRAD_CHECK(signature.ok());
    auto plan = BuildPlan(*signature, device_.limits());
    TETRAD_CHECK(plan.ok());
    keys_.emplace_back(*std::move(plan));
  }
  limits_.plans = 1 + random_.Below(4);
  limits_.host_bytes = keys_[0].plan.host_bytes() * (2 + random_.Below(4));
  cache_.emplace(limits_);
}

void PlanWorld::Promise(bool kept, const char* promise, int64_t detail) {
  if (!kept) trace_.Fail(absl::StrCat("plan cache: ", promise, " (", detail, ")"));
}

int64_t PlanWorld::CachedBytes() const {
  int64_t bytes = 0;
  for (const size_t index : by_use_) bytes += keys_[index].plan.host_bytes();
  return bytes;
}

void PlanWorld::Ask(size_t index) {
  Key& key = keys_[index];
  auto asker = std::make_unique<Asker>();
  asker->ready = [](PlanCache::Asker* told) { ++static_cast<Asker*>(told)->told; };
  const PlanCache::Turn turn = cache_->Begin(key.key, *asker);
  trace_.Add(0, "ask for plan", index, turn);
  if (key.building) {
    Promise(turn == PlanCache::Turn::kWait, "who asks for what is being built waits");
    ++stats_.hits;
    key.waiting.push_back(std::move(asker));
    coverage_.Count(Seen::kPlanWaited);
  } else if (key.entry != nullptr) {
    Promise(turn == PlanCache::Turn::kReady && asker->result.ok() &&
                asker->result->entry == key.entry && asker->result->cached,
            "what was built is there");
    ++stats_.hits;
    by_use_.remove(index);
    by_use_.push_back(index);
    coverage_.Count(Seen::kPlanShared);
  } else {
    Promise(turn == PlanCache::Turn::kBuild, "what is not there is built by who asks");
    ++stats_.misses;
    key.building = true;
  }
}

void PlanWorld::Built(size_t index, std::shared_ptr<PlanEntry> entry) {
  keys_[index].entry = std::move(entry);
  by_use_.push_back(index);
  while (by_use_.size() > 1 &&
         (std::ssize(by_use_) > limits_.plans || CachedBytes() > limits_.host_bytes)) {
    coverage_.Count(std::ssize(by_use_) > limits_.plans ? Seen::kPlanEvicted
                                                        : Seen::kPlanEvictedByBytes);
    keys_[by_use_.front()].entry = nullptr;
    by_use_.pop_front();
    ++stats_.evictions;
  }
  if (CachedBytes() > limits_.host_bytes) coverage_.Count(Seen::kPlanKeptOverLimit);
}

void PlanWorld::Finish(size_t index) {
  Key& key = keys_[index];
  if (!key.building) return;
  const bool fails = random_.OneIn(4);
  absl::StatusOr<std::shared_ptr<PlanEntry>> built = absl::InternalError("no plan");
  if (!fails) built = std::make_shared<PlanEntry>(device_, pool_, budget_, key.plan);
  const auto found = cache_->Finish(key.key, built);
  trace_.Add(0, "plan is finished", index, fails, key.waiting.size());
  Promise(found.ok() == built.ok() && (fails || (found->entry == *built && !found->cached)),
          "who builds gets what was built");
  for (const auto& asker : key.waiting) {
    Promise(asker->told == 1, "who waits is told once", asker->told);
    Promise(asker->result.status().code() == built.status().code() &&
                (fails || (asker->result->entry == *built && asker->result->cached)),
            "who waits gets what was built");
  }
  if (fails) coverage_.Count(key.waiting.empty() ? Seen::kPlanFailed : Seen::kPlanWaitedInVain);
  key.building = false;
  // One that was not told is still known to the cache.
  for (auto& asker : key.waiting) {
    if (asker->told == 0) (void)asker.release();
  }
  key.waiting.clear();
  if (!fails) Built(index, *built);
}

void PlanWorld::Check() {
  const auto entries = cache_->Entries();
  bool same = entries.size() == by_use_.size();
  size_t at = 0;
  for (const size_t index : by_use_) same = same && entries[at++] == keys_[index].entry;
  Promise(same, "the plans used last are kept, as many as the limits allow",
          std::ssize(entries) - std::ssize(by_use_));
  const PlanCache::Stats stats = cache_->stats();
  Promise(stats.size == std::ssize(by_use_) && stats.hits == stats_.hits &&
              stats.misses == stats_.misses && stats.evictions == stats_.evictions,
          "hits, misses and evictions are counted");
}

void PlanWorld::Run() {
  for (int i = 0; i < kPlanEvents && !trace_.failed(); ++i) {
    const size_t index = static_cast<size_t>(random_.Below(std::ssize(keys_)));
    random_.OneIn(3) ? Finish(index) : Ask(index);
    Check();
  }
  for (size_t i = 0; i < keys_.size() && !trace_.failed(); ++i) Finish(i);
}

}  // namespace tetrad::simulation
