// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of completions: exactly one a launch, and a wake-up after each.
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "engine/device_contract.h"

namespace tetrad {
namespace {

constexpr auto kLong = std::chrono::seconds(20);  // only a deadlock takes it

TEST_P(DeviceContract, EveryTicketCompletesOnceUnderManyThreads) {
  Make({.max_in_flight = 4});
  constexpr uint64_t kThreads = 4, kLaunches = 500;
  DeviceSample sample(device(), {{3, 40, 64}, {2, 40, 64}});
  const BindingId binding = Bind(sample);
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const LaneId lane{static_cast<uint32_t>(t % device().limits().lanes)};
      for (uint64_t i = 0; i < kLaunches && !failed;) {
        const absl::Status status = device().Launch(lane, binding, t << 32 | i);
        if (status.ok()) {
          ++i;
        } else {
          EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
          std::this_thread::yield();
        }
      }
    });
  }
  // One lane's launches are made by one thread where there are enough lanes.
  const bool ordered = device().limits().lanes >= static_cast<int32_t>(kThreads);
  std::map<uint64_t, uint64_t> next;
  std::map<uint64_t, int> times;
  for (uint64_t seen = 0; seen < kThreads * kLaunches && !failed; ++seen) {
    const Completion completion = WaitFor(1)[0];
    failed = HasFailure();
    ++times[completion.ticket];
    if (ordered) {
      EXPECT_EQ(completion.ticket & 0xFFFFFFFF, next[completion.ticket >> 32]++);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(times.size(), kThreads * kLaunches);
  for (const auto& [ticket, count] : times) EXPECT_EQ(count, 1) << ticket;
  Completion extra;
  EXPECT_EQ(device().Poll({&extra, 1}), 0u);
  EXPECT_TRUE(sample.Correct());
  EXPECT_TRUE(device().Unbind(binding).ok());
}

// Several pollers share the completions between them.
TEST_P(DeviceContract, ManyPollersTakeEachCompletionOnce) {
  DeviceSample sample(device(), {{3, 40, 64}});
  const BindingId binding = Bind(sample);
  constexpr int kLaunches = 1000;
  std::vector<std::atomic<int>> times(kLaunches);
  std::atomic<int> seen{0};
  std::vector<std::thread> pollers;
  for (int t = 0; t < 3; ++t) {
    pollers.emplace_back([&] {
      Completion some[2];
      EXPECT_TRUE(Eventually([&] {
        const size_t got = device().Poll(some);
        for (size_t i = 0; i < got; ++i) ++times[some[i].ticket];
        seen += static_cast<int>(got);
        if (got == 0) std::this_thread::yield();
        return seen >= kLaunches;
      }));
    });
  }
  uint64_t launched = 0;
  EXPECT_TRUE(Eventually([&] {
    if (device().Launch(LaneId{0}, binding, launched).ok()) {
      ++launched;
    } else {
      std::this_thread::yield();
    }
    return launched == kLaunches;
  }));
  for (std::thread& poller : pollers) poller.join();
  for (const std::atomic<int>& count : times) EXPECT_EQ(count, 1);
}

// One launch at a time: each must bring a wake-up of its own, and what it
// announces must be there.
TEST_P(DeviceContract, AWakeUpFollowsEachCompletion) {
  DeviceSample sample(device(), {{3, 40, 64}});
  const BindingId binding = Bind(sample);
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t before = wakes_->count();
    ASSERT_TRUE(device().Launch(LaneId{0}, binding, i).ok());
    ASSERT_TRUE(wakes_->WaitBeyond(before)) << "launch " << i << " woke nobody";
    Completion completion;
    ASSERT_EQ(device().Poll({&completion, 1}), 1u) << "woken before launch " << i << " was there";
    EXPECT_EQ(completion.ticket, i);
  }
}

// While a device thread is held up in `wake`, what it announces can be fetched:
// it comes after the fact and holds no lock of the device.
TEST_P(DeviceContract, TheDeviceIsUsableDuringAWakeUp) {
  struct Held {
    std::mutex mutex;
    std::condition_variable changed;
    bool waking = false, let_go = false, timely = true;  // guarded by mutex
  };
  const auto held = std::make_shared<Held>();
  device_ = *GetParam().make({}, [held] {
    std::unique_lock lock(held->mutex);
    held->waking = true;
    held->changed.notify_all();
    held->timely &= held->changed.wait_for(lock, kLong, [&] { return held->let_go; });
  });
  DeviceSample sample(device(), {{3, 40, 64}});
  const BindingId binding = Bind(sample);
  ASSERT_TRUE(device().Launch(LaneId{0}, binding, 7).ok());
  {
    std::unique_lock lock(held->mutex);
    ASSERT_TRUE(held->changed.wait_for(lock, kLong, [&] { return held->waking; }));
  }
  Completion completion;
  EXPECT_EQ(device().Poll({&completion, 1}), 1u);
  EXPECT_EQ(completion.ticket, 7u);
  EXPECT_TRUE(sample.Correct());
  EXPECT_TRUE(device().Unbind(binding).ok());
  {
    std::lock_guard lock(held->mutex);
    held->let_go = true;
  }
  held->changed.notify_all();
  device_.reset();
  EXPECT_TRUE(held->timely) << "the device was locked while it called `wake`";
}

}  // namespace
}  // namespace tetrad
