// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stream_turn.h"

namespace tetrad {

bool StreamTurn::Take() {
  std::lock_guard lock(mutex_);
  own_ = true;
  return !finished_;
}

std::optional<absl::Status> StreamTurn::NextRead(absl::FunctionRef<void()> start) {
  {
    std::lock_guard lock(mutex_);
    if (outside_.has_value()) {
      finished_ = true;
      return outside_;
    }
    own_ = false;
    ++starting_;
  }
  start();
  std::lock_guard lock(mutex_);
  --starting_;
  if (!outside_.has_value() || own_ || finished_ || starting_ > 0) return std::nullopt;
  finished_ = true;
  return outside_;
}

void StreamTurn::Finish() {
  std::lock_guard lock(mutex_);
  finished_ = true;
}

bool StreamTurn::EndFromOutside(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  if (finished_ || outside_.has_value()) return false;
  outside_ = why;
  if (own_ || starting_ > 0) return false;
  finished_ = true;
  return true;
}

}  // namespace tetrad
