// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// StoppedThreads: the threads of one name in a daemon, standing still. With the
// CPU device's thread stopped what it was given runs for as long as a test
// wants; with the work pool's, a request is in and its plan is not built.
//
// The threads should be idle, so that they hold no lock. Made and destroyed by
// one thread, before the daemon ends.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace tetrad::e2e {

inline constexpr char kDeviceThread[] = "tetrad-device";
inline constexpr char kWorkThreads[] = "tetrad-work";
inline constexpr char kLoadThreads[] = "tetrad-load";

class StoppedThreads {
 public:
  // A failure fails the test: one process must be allowed to trace another.
  StoppedThreads(pid_t daemon, const std::string& name);
  ~StoppedThreads() { Resume(); }
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  void Resume();

 private:
  std::vector<pid_t> threads_;
};

}  // namespace tetrad::e2e
