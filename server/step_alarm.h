// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// StepAlarm: runs a step function when it is due, on a thread of the RPC
// library. The step says when it is due again; whoever makes it due earlier
// says so with Arm().
//
// Thread-safe; the step is run by one thread at a time, possibly once too often.
// The destructor waits for a step under way.
#pragma once

#include <functional>
#include <memory>

#include "engine/support/instant.h"

namespace tetrad {

class StepAlarm {
 public:
  // `step` returns when it is due next on the steady clock, kNever: not by itself.
  explicit StepAlarm(std::function<Instant()> step);
  ~StepAlarm();
  StepAlarm(const StepAlarm&) = delete;
  StepAlarm& operator=(const StepAlarm&) = delete;

  void Arm(Instant due);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace tetrad
