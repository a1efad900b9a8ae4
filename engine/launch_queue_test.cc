// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/launch_queue.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;

class LaunchQueueTest : public ::testing::Test {
 protected:
  Launch& Add(uint64_t flow, int64_t predicted_ns, Priority priority = Priority::kNormal,
              int32_t weight = 1) {
    Launch& launch = launches_.emplace_back();
    launch.flow = {.id = flow, .weight = weight};
    launch.predicted_ns = predicted_ns;
    launch.priority = priority;
    queue_.Append(&launch);
    return launch;
  }
  // The flow of what is given out; 0 if there is nothing.
  uint64_t Next() {
    Launch* const launch = queue_.front();
    if (launch == nullptr) return 0;
    queue_.PopFront();
    served_[launch->flow.id] += static_cast<double>(launch->predicted_ns);
    return launch->flow.id;
  }
  std::vector<uint64_t> Next(int count) {
    std::vector<uint64_t> flows;
    for (int i = 0; i < count; ++i) flows.push_back(Next());
    return flows;
  }

  LaunchQueue queue_{64};
  std::deque<Launch> launches_;
  std::map<uint64_t, double> served_;  // predicted ns
};

TEST_F(LaunchQueueTest, OneFlowIsServedInOrderOfArrival) {
  std::vector<Launch*> added, given;
  for (int i = 0; i < 10; ++i) added.push_back(&Add(7, 10'000 * (10 - i)));
  while (Launch* const launch = queue_.front()) {
    given.push_back(launch);
    queue_.PopFront();
  }
  EXPECT_EQ(given, added);
  EXPECT_EQ(queue_.size(), 0);
}

TEST_F(LaunchQueueTest, AHigherPriorityIsFirstWhoeverWaits) {
  Add(1, 10'000, Priority::kLow);
  Add(2, 10'000, Priority::kNormal);
  Add(1, 10'000, Priority::kHigh);
  Add(3, 10'000, Priority::kHigh);
  EXPECT_THAT(Next(5), ElementsAre(1, 3, 2, 1, 0));
}

TEST_F(LaunchQueueTest, OneRequestDoesNotWaitForAnothersBacklog) {
  for (int i = 0; i < 20; ++i) Add(1, 100'000);
  EXPECT_THAT(Next(3), ElementsAre(1, 1, 1));
  Add(2, 100'000);
  EXPECT_THAT(Next(2), ElementsAre(2, 1));
}

TEST_F(LaunchQueueTest, TimeIsSharedNotTurns) {
  for (int i = 0; i < 40; ++i) Add(1, 10'000);
  for (int i = 0; i < 4; ++i) Add(2, 100'000);
  // While both wait, ten short ones for each long one.
  for (int i = 0; i < 33; ++i) Next();
  EXPECT_EQ(served_[2], 300'000);
  EXPECT_EQ(served_[1], 300'000);
}

TEST_F(LaunchQueueTest, AClientWithOneRequestAtATimeGetsItsShareAndNoMore) {
  // One that always waits with short launches against one whose next long
  // launch comes when its last was given out.
  for (int i = 0; i < 30; ++i) Add(1, 10'000);
  for (int i = 0; i < 300; ++i) {
    if (Next() == 2 || i == 0) Add(2, 200'000);
    while (queue_.size() < 30) Add(1, 10'000);
  }
  EXPECT_NEAR(served_[2] / served_[1], 1, 0.15);
}

TEST_F(LaunchQueueTest, WeightsDivideTheTime) {
  for (int i = 0; i < 20; ++i) Add(1, 50'000, Priority::kNormal, 1);
  for (int i = 0; i < 40; ++i) Add(2, 50'000, Priority::kNormal, 3);
  for (int i = 0; i < 40; ++i) Next();
  EXPECT_EQ(served_[1], 10 * 50'000);
  EXPECT_EQ(served_[2], 30 * 50'000);
}

TEST_F(LaunchQueueTest, WhoUsedAnIdleDeviceOwesNothing) {
  for (int i = 0; i < 50; ++i) {
    Add(1, 1'000'000);
    Next();
  }
  for (int i = 0; i < 5; ++i) Add(1, 1'000'000);
  for (int i = 0; i < 5; ++i) Add(2, 1'000'000);
  EXPECT_THAT(Next(4), ElementsAre(1, 2, 1, 2));
}

TEST_F(LaunchQueueTest, WhoWasIdleHasSavedNothing) {
  Add(2, 10'000);
  for (int i = 0; i < 30; ++i) Add(1, 100'000);
  Next(30);
  for (int i = 0; i < 10; ++i) Add(2, 100'000);
  for (int i = 0; i < 10; ++i) Add(1, 100'000);
  served_.clear();
  Next(10);
  EXPECT_NEAR(served_[1], served_[2], 200'000);  // a launch of each
}

TEST_F(LaunchQueueTest, WhatDoesNotRunCostsNothing) {
  std::vector<Launch*> dropped;
  for (int i = 0; i < 10; ++i) dropped.push_back(&Add(1, 1'000'000));
  for (int i = 0; i < 3; ++i) Add(2, 100'000);
  for (Launch* launch : dropped) queue_.Remove(launch);
  for (int i = 0; i < 3; ++i) Add(1, 100'000);
  EXPECT_THAT(Next(6), ElementsAre(2, 1, 2, 1, 2, 1));
}

TEST_F(LaunchQueueTest, TinyAndHugePredictionsCount) {
  for (int i = 0; i < 4; ++i) Add(1, 0);
  for (int i = 0; i < 4; ++i) Add(2, 0);
  EXPECT_THAT(Next(8), ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  for (int i = 0; i < 8; ++i) Add(3, INT64_MAX);
  for (int i = 0; i < 8; ++i) Add(4, INT64_MAX);
  Next(4);
  EXPECT_THAT(Next(4), ElementsAre(3, 4, 3, 4));
}

TEST_F(LaunchQueueTest, AnyNumberOfFlowsComesAndGoes) {
  for (uint64_t flow = 1; flow < 5000; ++flow) {
    Add(flow, 10'000);
    Add(flow, 10'000);
    EXPECT_EQ(Next(), flow);
    EXPECT_EQ(Next(), flow);
  }
  // As many at once as there is room for.
  for (uint64_t flow = 1; flow <= 64; ++flow) Add(flow, 10'000);
  std::vector<uint64_t> order = Next(64);
  std::ranges::sort(order);
  for (uint64_t flow = 1; flow <= 64; ++flow) EXPECT_EQ(order[flow - 1], flow);
}

// What the header promises, by an implementation that looks at everything.
class Reference {
 public:
  void Append(Launch* launch) {
    Level& level = levels_[static_cast<size_t>(launch->priority)];
    Flow& flow = level.flows[launch->flow.id];
    if (flow.waiting.empty()) flow.start = std::max(flow.start, level.now);
    flow.waiting.emplace_back(arrivals_++, launch);
  }
  void Remove(Launch* launch) { Take(launch, false); }
  void PopFront() { Take(front(), true); }
  Launch* front() {
    for (Level& level : levels_) {
      const Flow* best = nullptr;
      for (const auto& [id, flow] : level.flows) {
        if (flow.waiting.empty()) continue;
        if (best == nullptr || std::pair(flow.start, flow.waiting.front().first) <
                                   std::pair(best->start, best->waiting.front().first)) {
          best = &flow;
        }
      }
      if (best != nullptr) return best->waiting.front().second;
    }
    return nullptr;
  }

 private:
  struct Flow {
    int64_t start = 0;
    std::deque<std::pair<uint64_t, Launch*>> waiting;
  };
  struct Level {
    std::map<uint64_t, Flow> flows;
    int64_t now = 0, latest = 0;
  };
  void Take(Launch* launch, bool runs) {
    Level& level = levels_[static_cast<size_t>(launch->priority)];
    Flow& flow = level.flows[launch->flow.id];
    std::erase_if(flow.waiting, [&](const auto& entry) { return entry.second == launch; });
    if (runs) {
      level.now = flow.start;
      flow.start += std::max(launch->predicted_ns, LaunchQueue::kLeastCost) / launch->flow.weight;
      level.latest = std::max(level.latest, flow.start);
    }
    if (std::ranges::all_of(level.flows, [](const auto& f) { return f.second.waiting.empty(); })) {
      level.now = std::max(level.now, level.latest);
    }
  }
  std::array<Level, kPriorities> levels_;
  uint64_t arrivals_ = 0;
};

TEST(LaunchQueuePropertyTest, IsAsTheReferenceWhateverComesAndLeaves) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    LaunchQueue queue(48);
    Reference reference;
    std::deque<Launch> launches;
    std::vector<Launch*> waiting;
    const uint64_t flows = 1 + random() % 12;  // fewer than are remembered
    for (int event = 0; event < 600; ++event) {
      const uint64_t kind = random() % 8;
      if (kind < 4 && waiting.size() < 48) {
        Launch& launch = launches.emplace_back();
        launch.flow = {.id = random() % flows, .weight = static_cast<int32_t>(1 + random() % 3)};
        launch.priority = static_cast<Priority>(random() % kPriorities);
        launch.predicted_ns = static_cast<int64_t>(random() % 5 * 700);
        waiting.push_back(&launch);
        queue.Append(&launch);
        reference.Append(&launch);
      } else if (kind == 4 && !waiting.empty()) {
        Launch* const launch = waiting[random() % waiting.size()];
        std::erase(waiting, launch);
        queue.Remove(launch);
        reference.Remove(launch);
      } else if (!waiting.empty()) {
        std::erase(waiting, queue.front());
        queue.PopFront();
        reference.PopFront();
      }
      ASSERT_EQ(queue.front(), reference.front()) << "seed " << seed << " event " << event;
      ASSERT_EQ(queue.size(), std::ssize(waiting));
    }
  }
}

}  // namespace
}  // namespace tetrad
