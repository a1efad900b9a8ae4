// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/completion_poller.h"

#include <chrono>
#include <utility>

#include <pthread.h>

#include "engine/support/spin.h"

namespace tetrad::cuda {
namespace {

using Steady = std::chrono::steady_clock;

// How long after the last launch or completion the thread looks without pause:
// longer than a request and its answer take, short against a second of a core.
constexpr auto kSpin = std::chrono::microseconds(300);
// Between looks at a launch that takes longer than that.
constexpr auto kPause = std::chrono::microseconds(20);
constexpr auto kAskDriver = std::chrono::milliseconds(1);
// Looks at the words before one at the clock.
constexpr int kLooks = 32;

}  // namespace

CompletionPoller::CompletionPoller(CudaContext& context, std::span<const CUstream> lanes,
                                   uint32_t capacity, uint32_t depth,
                                   absl::AnyInvocable<void(const Ended&)> ended,
                                   absl::AnyInvocable<void()> wake)
    : context_(context),
      capacity_(capacity),
      depth_(depth),
      ended_(std::move(ended)),
      wake_(std::move(wake)),
      lanes_(lanes.size()) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].stream = lanes[i];
    lanes_[i].ring = std::make_unique<Launched[]>(capacity);
  }
  ended_now_.reserve(lanes.size() * capacity);
  thread_ = std::thread([this] { Run(); });
}

CompletionPoller::~CompletionPoller() {
  stopping_.store(true);
  doorbell_.Ring();
  thread_.join();
}

void CompletionPoller::Push(uint32_t lane, const Launched& launched) {
  Lane& to = lanes_[lane];
  const uint64_t at = to.pushed.load(std::memory_order_relaxed);
  to.ring[at % capacity_] = launched;
  under_way_.fetch_add(1, std::memory_order_relaxed);
  to.pushed.store(at + 1, std::memory_order_release);
  doorbell_.Ring();
}

void CompletionPoller::Look() {
  for (Lane& lane : lanes_) {
    const uint64_t pushed = lane.pushed.load(std::memory_order_acquire);
    for (; lane.taken < pushed; ++lane.taken) {
      const Launched launched = lane.ring[lane.taken % capacity_];
      const CompletionRecord& record = launched.graph->records[(launched.sequence - 1) % depth_];
      // The GPU writes the rest first and releases it with this.
      const uint64_t sequence =
          std::atomic_ref(const_cast<uint64_t&>(record.sequence)).load(std::memory_order_acquire);
      if (sequence != launched.sequence) break;
      ended_now_.push_back({launched, record.error_word, static_cast<int64_t>(record.device_ns)});
    }
  }
}

// Launches of one graph end in order, also those of different lanes, but one lane
// is looked at before the other. So nothing is told until a look shows nothing
// new: whoever hears of an end may launch again, and the record of an earlier
// launch that was not read yet would be written over.
size_t CompletionPoller::Collect() {
  ended_now_.clear();
  size_t seen;
  do {
    seen = ended_now_.size();
    Look();
  } while (ended_now_.size() > seen);
  for (const Ended& ended : ended_now_) ended_(ended);
  if (seen > 0) under_way_.fetch_sub(static_cast<int64_t>(seen), std::memory_order_relaxed);
  return seen;
}

void CompletionPoller::AskDriver() {
  if (!context_.Enter().ok()) return;
  for (const Lane& lane : lanes_) {
    if (lane.taken == lane.pushed.load(std::memory_order_relaxed)) continue;
    context_.IsIdle(lane.stream).IgnoreError();  // only the context's health is of interest
  }
}

void CompletionPoller::Run() {
  ::pthread_setname_np(::pthread_self(), "tetrad-poller");
  Steady::time_point active = Steady::now();
  Steady::time_point asked = active;
  bool spinning = true;
  unsigned looks = 0;
  while (true) {
    if (Collect() > 0) {
      wake_();
      active = Steady::now();
      spinning = true;
      continue;
    }
    if (++looks % kLooks != 0 && spinning) {
      Pause();
      continue;
    }
    const Steady::time_point now = Steady::now();
    const bool lost = !context_.health().ok();
    const bool busy = under_way_.load(std::memory_order_relaxed) > 0;
    if (stopping_.load() && (!busy || lost)) return;
    if (busy && !lost && now - asked > kAskDriver) {
      AskDriver();
      asked = now;
    }
    spinning = now - active < kSpin;
    if (spinning) {
      Pause();
    } else if (busy && !lost) {
      std::this_thread::sleep_for(kPause);
    } else {
      // Nothing to look at; of a lost device nothing more comes.
      doorbell_.WaitUntil(Steady::time_point::max());
      active = asked = Steady::now();
      spinning = true;
    }
  }
}

}  // namespace tetrad::cuda
