// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CompletionPoller: the one thread that watches the completion words which the
// GPU writes to host memory.
//
// Launches of a lane end in order, so only the oldest of each lane is looked at.
// The thread spins while something is under way and for a moment after, so that
// neither a launch nor a completion waits for a thread to be woken; when a
// launch takes long it looks less often, when nothing comes for longer it sleeps.
// Now and then it asks the driver whether the context still lives: after a fault
// the words never come.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

#include "engine/cuda/context.h"
#include "engine/cuda/launch_graphs.h"
#include "engine/support/doorbell.h"

namespace tetrad::cuda {

class CompletionPoller {
 public:
  // A launch that was handed to the driver.
  struct Launched {
    const LaunchGraph* graph = nullptr;
    uint64_t sequence = 0;  // of the graph's launches
    uint64_t ticket = 0;
    uint32_t binding = 0;
  };
  struct Ended {
    Launched launched;
    uint32_t error_word = 0;
    int64_t device_ns = 0;
  };

  // `capacity`: launches of a lane that can be under way; `depth`: of a graph.
  // Both callables are called by the poller's thread: `ended` for each launch,
  // then `wake` once for some of them.
  CompletionPoller(CudaContext& context, std::span<const CUstream> lanes, uint32_t capacity,
                   uint32_t depth, absl::AnyInvocable<void(const Ended&)> ended,
                   absl::AnyInvocable<void()> wake);
  // Waits for what is under way, unless the device is lost.
  ~CompletionPoller();

  // After the launch; by one thread a lane at a time. There must be room.
  void Push(uint32_t lane, const Launched& launched);

 private:
  // Written by Push(), emptied by the poller.
  struct Lane {
    CUstream stream = nullptr;
    std::unique_ptr<Launched[]> ring;
    std::atomic<uint64_t> pushed{0};
    uint64_t taken = 0;  // of the poller alone
  };
  void Run();
  // Ends what is complete; how many that were.
  size_t Collect();
  // Adds what a look at the lanes shows to ended_now_.
  void Look();
  void AskDriver();

  CudaContext& context_;
  const uint32_t capacity_;
  const uint32_t depth_;
  absl::AnyInvocable<void(const Ended&)> ended_;
  absl::AnyInvocable<void()> wake_;
  std::vector<Lane> lanes_;
  std::vector<Ended> ended_now_;  // scratch of Collect()
  std::atomic<int64_t> under_way_{0};
  std::atomic<bool> stopping_{false};
  Doorbell doorbell_;
  std::thread thread_;
};

}  // namespace tetrad::cuda
