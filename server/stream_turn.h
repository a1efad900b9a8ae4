// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// StreamTurn: lets a stream of messages that is being read be ended from
// outside, exactly once, and never while something is done with a message.
//
// The turn is the stream's own from its start and from OnReadDone() on, until
// NextRead(); meanwhile an end from outside is kept for the stream to find. At
// other times the one who brings it finishes the stream, with its read pending:
// the RPC library then completes that, and Take() says that there is nothing to do.
//
// Thread-safe. Callers keep the stream alive during a call: starting a read may
// run the next OnReadDone(), up to OnDone(), before it returns.
#pragma once

#include <mutex>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tetrad {

class StreamTurn {
 public:
  // At the begin of OnReadDone(). False: the stream was finished.
  bool Take();
  // Gives the turn away and runs `start`, which starts a read. What comes back,
  // before that or after, is an end from outside that the caller must finish with.
  std::optional<absl::Status> NextRead(absl::FunctionRef<void()> start);
  // The stream, whose turn it is, will finish itself.
  void Finish();
  // True: the caller must finish the stream with `why`. False: its own turn will, if
  // it does not end anyhow.
  bool EndFromOutside(const absl::Status& why);

 private:
  std::mutex mutex_;
  bool own_ = true;                      // guarded by mutex_
  int starting_ = 0;                     // reads; guarded by mutex_
  bool finished_ = false;                // guarded by mutex_
  std::optional<absl::Status> outside_;  // guarded by mutex_
};

}  // namespace tetrad
