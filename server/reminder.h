// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reminder: calls a function when a time has come, on a thread of the RPC
// library; for what must happen although nobody calls. One time is kept, the
// earliest asked for since the last call.
//
// Thread-safe. The destructor waits for a call that runs; none comes after it.
// By() may be called from within the function, the destructor may not.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"

#include "engine/support/instant.h"

namespace tetrad {

class Reminder {
 public:
  explicit Reminder(absl::AnyInvocable<void()> act);
  ~Reminder();
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

  // Of the steady clock; kNever asks for nothing. Called up to some milliseconds
  // later.
  void By(Instant due);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // alarms may outlive the rest
};

}  // namespace tetrad
