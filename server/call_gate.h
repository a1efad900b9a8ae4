// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CallGate: lets calls in, counts them, and closes for a drain.
//
// Stopping a service has two problems: calls that arrive while it stops, and
// calls that are still running. Enter() refuses the first once closed; idle_fd()
// becomes readable when the gate is closed and the last of the second has left.
//
// Thread-safe, lock-free. A Pass must not outlive its gate.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

#include "engine/support/unique_fd.h"

namespace tetrad {

class CallGate {
 public:
  // One call inside; it leaves when the pass is destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      Leave();
      gate_ = std::exchange(other.gate_, nullptr);
      return *this;
    }
    ~Pass() { Leave(); }

   private:
    friend class CallGate;
    explicit Pass(CallGate* gate) : gate_(gate) {}
    void Leave();
    CallGate* gate_ = nullptr;
  };

  CallGate();

  // UNAVAILABLE once closed.
  absl::StatusOr<Pass> Enter();
  // The gate still lets calls in, but says that it is about to close.
  void AnnounceClosing() { closing_.store(true, std::memory_order_relaxed); }
  void Close();

  bool closing() const { return closing_.load(std::memory_order_relaxed); }
  int64_t inside() const { return state_.load(std::memory_order_relaxed) & ~kClosed; }
  // Readable once closed and empty.
  int idle_fd() const { return idle_.get(); }

 private:
  static constexpr int64_t kClosed = int64_t{1} << 62;
  void Leave();

  std::atomic<int64_t> state_{0};  // calls inside, plus kClosed
  std::atomic<bool> closing_{false};
  UniqueFd idle_;
};

}  // namespace tetrad
