// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ProgressTimer: notices that a client, for whom something waits, does nothing.
//
// What waits says so with Wait(), and with Resume() when the client did what was
// waited for. If that takes longer than the limit, `stalled` is called once, on
// a thread of the RPC library. There is one alarm, which is set again at most
// twice per limit however many messages pass; before the first Wait() there is
// nothing, not even memory. Waiting costs a look at the clock and a store.
//
// Wait() and Resume() are for one thread at a time. Stop() and the destructor
// return when `stalled` is not running and will not, unless they are called by
// it; it may destroy the timer.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "engine/support/instant.h"

namespace tetrad {

class ProgressTimer {
 public:
  using Stalled = absl::AnyInvocable<void()>;

  ProgressTimer(absl::Duration limit, Stalled stalled);
  ~ProgressTimer() { Stop(); }
  ProgressTimer(const ProgressTimer&) = delete;
  ProgressTimer& operator=(const ProgressTimer&) = delete;

  // From now on the client is waited for, `extra` longer than the limit.
  void Wait(absl::Duration extra = absl::ZeroDuration());
  // It did what was waited for. False if it is too late for that: `stalled` was
  // called, or is about to be.
  bool Resume();
  void Stop();
  // Before the first Wait().
  void SetStalled(Stalled stalled) { stalled_ = std::move(stalled); }

 private:
  struct State;
  const int64_t limit_ns_;
  Stalled stalled_;  // until the first Wait()
  std::shared_ptr<State> state_;
};

}  // namespace tetrad
