// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SIGINT and SIGTERM as a stop request: work in hand is cancelled and cleaned
// up (uploaded weights are dropped), then the program ends. A second signal
// ends it at once.
//
// Make one at the start of main, before any other thread exists: it blocks the
// two signals for all threads made later and waits for them in a thread of its
// own, so no code of ours runs in a signal handler.
#pragma once

#include <stop_token>
#include <thread>

namespace tetrad::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread watcher_;  // last: ends before `source_` goes
};

}  // namespace tetrad::cli
