// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LaunchQueue: what waits for the device, and what is next: the highest priority
// first; within one, flows share the predicted time of the device in proportion
// to their weights; within a flow, in order of arrival.
//
// Start-time fair queueing (Goyal, Vin and Cheng, 1996). A level has a virtual
// time, the start of what it gave out last. A flow's next launch starts when the
// one before it finished, but not before the virtual time at which it found
// its flow empty; it finishes predicted_ns / weight later; the smallest start is
// next. So a flow that keeps asking gets its share whatever others have queued,
// one that asked for little is served at once, and nobody saves up what he did
// not use. Two flows that both wait all the time are never further apart than
// one launch of each (by predicted time over weight).
//
// A flow that waits for nothing is remembered for what it has used: the
// kRemembered last ones, until the level is empty. Then all are even.
//
// The cost of a launch grows with the logarithm of the flows that wait. Nothing
// is allocated after construction. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/launch.h"
#include "engine/placed_heap.h"

namespace tetrad {

class LaunchQueue {
 public:
  static constexpr size_t kRemembered = 256;
  // What a launch counts at least, in ns: not even a tiny one is free.
  static constexpr int64_t kLeastCost = 1000;

  // Room for `depth` launches at once.
  explicit LaunchQueue(size_t depth);
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  int64_t size() const { return size_; }
  // What is next; null if there is nothing.
  Launch* front() const;
  void Append(Launch* launch);
  // A launch ends without its flow having used the device.
  void Remove(Launch* launch);
  // The launch in front goes to the device, at its flow's expense.
  void PopFront();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A flow at one priority. Of one that waits, `start` is that of its first
  // launch; of another, the finish of its last.
  struct FlowState {
    uint64_t id = 0;
    size_t level = 0;
    int64_t start = 0;
    LaunchList waiting;
    uint32_t place = 0;                     // among those of its level that wait
    uint32_t chain = kNone;                 // next with the same bucket
    uint32_t newer = kNone, older = kNone;  // among those that do not wait
  };
  static bool Before(const FlowState& a, const FlowState& b);
  struct Level {
    explicit Level(size_t capacity) : waiting(capacity) {}
    PlacedHeap<FlowState, &FlowState::place, &LaunchQueue::Before> waiting;
    int64_t now = 0;     // virtual, in ns
    int64_t latest = 0;  // finish of all that was given out
  };

  static int64_t Cost(const Launch& launch);
  size_t Bucket(uint64_t id, size_t level) const;
  uint32_t Find(uint64_t id, size_t level) const;
  uint32_t Make(uint64_t id, size_t level);  // of the oldest that does not wait
  void LinkIdle(uint32_t index);             // as the newest
  void UnlinkIdle(uint32_t index);
  void Leave(Launch* launch, int64_t start);

  std::vector<FlowState> flows_;
  std::vector<uint32_t> buckets_;  // first flow of each
  uint32_t newest_ = kNone, oldest_ = kNone;
  std::vector<Level> levels_;
  uint64_t arrivals_ = 0;
  int64_t size_ = 0;
};

}  // namespace tetrad
