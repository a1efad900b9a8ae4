// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/launch_queue.h"

#include <algorithm>
#include <bit>

#include "engine/support/status_macros.h"

namespace tetrad {

LaunchQueue::LaunchQueue(size_t depth)
    : flows_(depth + kRemembered), buckets_(std::bit_ceil(flows_.size()), kNone) {
  levels_.reserve(kPriorities);
  for (size_t level = 0; level < kPriorities; ++level) levels_.emplace_back(depth);
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    flows_[i].level = kPriorities;  // no flow yet, and in no bucket
    LinkIdle(i);
  }
}

// Of two that start together, the one that came first.
bool LaunchQueue::Before(const FlowState& a, const FlowState& b) {
  return a.start != b.start ? a.start < b.start
                            : a.waiting.head()->arrival_ < b.waiting.head()->arrival_;
}

// A prediction has no bound; an hour is enough to lose one's turn, and sums of
// it stay far from overflow.
int64_t LaunchQueue::Cost(const Launch& launch) {
  constexpr int64_t kMostCost = 3'600'000'000'000;
  return std::clamp(launch.predicted_ns, kLeastCost, kMostCost) / launch.flow.weight;
}

size_t LaunchQueue::Bucket(uint64_t id, size_t level) const {
  // Multiplicative hashing: ids may be small numbers as well as hashes.
  const uint64_t mixed = (id * kPriorities + level) * 0x9E3779B97F4A7C15;
  return static_cast<size_t>(mixed >> 32) & (buckets_.size() - 1);
}

uint32_t LaunchQueue::Find(uint64_t id, size_t level) const {
  uint32_t index = buckets_[Bucket(id, level)];
  while (index != kNone && (flows_[index].id != id || flows_[index].level != level)) {
    index = flows_[index].chain;
  }
  return index;
}

uint32_t LaunchQueue::Make(uint64_t id, size_t level) {
  const uint32_t index = oldest_;
  TETRAD_CHECK(index != kNone);  // fewer wait than there are
  FlowState& flow = flows_[index];
  if (flow.level < kPriorities) {
    uint32_t* link = &buckets_[Bucket(flow.id, flow.level)];
    while (*link != index) link = &flows_[*link].chain;
    *link = flow.chain;
  }
  flow.id = id;
  flow.level = level;
  flow.start = 0;
  uint32_t& bucket = buckets_[Bucket(id, level)];
  flow.chain = bucket;
  bucket = index;
  return index;
}

void LaunchQueue::LinkIdle(uint32_t index) {
  FlowState& flow = flows_[index];
  flow.newer = kNone;
  flow.older = newest_;
  (newest_ != kNone ? flows_[newest_].newer : oldest_) = index;
  newest_ = index;
}

void LaunchQueue::UnlinkIdle(uint32_t index) {
  const FlowState& flow = flows_[index];
  (flow.newer != kNone ? flows_[flow.newer].older : newest_) = flow.older;
  (flow.older != kNone ? flows_[flow.older].newer : oldest_) = flow.newer;
}

Launch* LaunchQueue::front() const {
  for (const Level& level : levels_) {
    if (const FlowState* const flow = level.waiting.first()) return flow->waiting.head();
  }
  return nullptr;
}

void LaunchQueue::Append(Launch* launch) {
  const size_t number = static_cast<size_t>(launch->priority);
  TETRAD_CHECK(number < levels_.size() && launch->flow.weight >= 1);
  Level& level = levels_[number];
  uint32_t index = Find(launch->flow.id, number);
  if (index == kNone) index = Make(launch->flow.id, number);
  FlowState& flow = flows_[index];
  launch->arrival_ = arrivals_++;
  launch->queue_flow_ = index;
  ++size_;
  if (!flow.waiting.empty()) {
    flow.waiting.Append(launch);
    return;
  }
  UnlinkIdle(index);
  flow.waiting.Append(launch);
  flow.start = std::max(flow.start, level.now);
  level.waiting.Insert(&flow);
}

void LaunchQueue::Leave(Launch* launch, int64_t start) {
  FlowState& flow = flows_[launch->queue_flow_];
  Level& level = levels_[flow.level];
  // What orders the flow may change: it goes out and in again.
  level.waiting.Remove(&flow);
  flow.waiting.Remove(launch);
  flow.start = start;
  --size_;
  if (!flow.waiting.empty()) {
    level.waiting.Insert(&flow);
    return;
  }
  LinkIdle(launch->queue_flow_);
  if (level.waiting.first() == nullptr) level.now = std::max(level.now, level.latest);
}

void LaunchQueue::Remove(Launch* launch) { Leave(launch, flows_[launch->queue_flow_].start); }

void LaunchQueue::PopFront() {
  Launch* const launch = front();
  TETRAD_CHECK(launch != nullptr);
  const FlowState& flow = flows_[launch->queue_flow_];
  Level& level = levels_[flow.level];
  level.now = flow.start;
  const int64_t finish = flow.start + Cost(*launch);
  level.latest = std::max(level.latest, finish);
  Leave(launch, finish);
}

}  // namespace tetrad
