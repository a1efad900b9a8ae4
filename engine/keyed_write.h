// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// KeyedWrite: the last write of a block that its client gave a key: where it
// began, how much of it arrived without a gap, and which stream does it.
//
// A stream joins with the key and the offset it will go on from. Of two on one
// key the newer has it: what the older is copying ends first, and nothing that
// the older brings later is copied or counted. A stream with another key makes
// the block forget this one; the older then writes on, uncounted.
//
// Thread-safe. Joining waits for a copy of the stream that is replaced. Errors:
// ALREADY_EXISTS where the offset would leave a gap or belongs to another write,
// ABORTED for a stream that was replaced.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tetrad {

struct WriteProgress {
  int64_t offset = 0;  // where it began
  int64_t bytes = 0;   // written from there on without a gap
  bool under_way = false;
};

class KeyedWrite {
 public:
  // Of a stream, from Join() on.
  enum class Turn : uint64_t {};

  // Under the key that the block remembers: `offset` must be in what was written
  // or at its end, and what lies behind it counts as not written. Under another
  // one a write begins there. `taken_over` is called once, without a lock, if
  // another stream joins with the key before Leave(); it may be called just after.
  absl::StatusOr<Turn> Join(std::string_view key, int64_t offset, std::function<void()> taken_over);
  // Runs `copy`, which writes the next `bytes`, and counts them if it does.
  absl::Status Append(Turn turn, int64_t bytes, absl::FunctionRef<absl::Status()> copy);
  void Leave(Turn turn);

  // NOT_FOUND unless `key` is the one that is remembered.
  absl::StatusOr<WriteProgress> Find(std::string_view key) const;

 private:
  // Held by copies, and taken before mutex_.
  std::mutex copying_;
  mutable std::mutex mutex_;
  std::string key_;                   // empty: none; guarded by mutex_
  WriteProgress progress_;            // guarded by mutex_
  std::function<void()> taken_over_;  // of the stream under way; guarded by mutex_
  uint64_t turn_ = 0;                 // the newest one under key_; guarded by mutex_
  uint64_t first_turn_ = 0;           // under key_; older ones have other keys; guarded by mutex_
};

}  // namespace tetrad
