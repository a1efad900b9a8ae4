// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/call_gate.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

CallGate::CallGate() : idle_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TETRAD_CHECK(idle_); }

absl::StatusOr<CallGate::Pass> CallGate::Enter() {
  if ((state_.fetch_add(1, std::memory_order_acq_rel) & kClosed) != 0) {
    Leave();
    return ReasonError(Reason::kDraining, "the daemon is shutting down and takes no new calls");
  }
  return Pass(this);
}

void CallGate::Close() {
  AnnounceClosing();
  if (state_.fetch_or(kClosed, std::memory_order_acq_rel) == 0) ::eventfd_write(idle_.get(), 1);
}

void CallGate::Leave() {
  if (state_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1)) {
    ::eventfd_write(idle_.get(), 1);
  }
}

void CallGate::Pass::Leave() {
  if (gate_ != nullptr) std::exchange(gate_, nullptr)->Leave();
}

}  // namespace tetrad
