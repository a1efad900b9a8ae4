// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Resumption: when a transfer whose connection broke is tried again, and for
// how long. For the sources of this folder.
//
// Waits double from one failure to the next and are drawn from the upper half
// of their range, so that clients of a daemon that comes back do not come all at
// once. They begin anew when the daemon says that it has more than before. The end
// is the call's deadline, or the client's patience with a daemon that takes
// nothing. For one thread.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "clients/cpp/client.h"

namespace tetrad {

class Resumption {
 public:
  // `deadline` is that of a call that has none of its own.
  Resumption(const CallOptions& call, const ClientOptions& options, absl::Duration deadline);

  // A name of 128 random bits.
  const std::string& key() const { return key_; }
  // What is left of the call, for the next attempt.
  CallOptions Attempt() const;
  // The daemon has `bytes` of the transfer: more than before means that it goes on.
  void Reached(int64_t bytes);
  // The connection took more of the transfer than any before.
  void Sent() { since_ = absl::Now(); }
  // After an attempt ended with `status`: true once it is time for another, false if
  // there is none, because of the code, the call's options or the time. CANCELLED
  // takes the place of what was to be tried again when the caller cancels.
  bool Again(absl::Status& status);
  // The next wait, drawn; apart for its test.
  absl::Duration NextWait();

 private:
  const CallOptions call_;
  const bool resume_;
  const absl::Duration patience_;
  const absl::Time deadline_;
  std::mt19937_64 random_;
  std::string key_;
  absl::Time since_;  // patience is needed
  int64_t reached_ = 0;
  int failures_ = 0;  // since the daemon had more
};

}  // namespace tetrad
