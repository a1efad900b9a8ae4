// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ByteBudget: bytes that many holders may take together, up to a limit.
//
// Thread-safe and lock-free. Whoever took bytes gives the same number back.
#pragma once

#include <atomic>
#include <cstdint>

namespace tetrad {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // False, and nothing is taken, if fewer than `bytes` are left.
  [[nodiscard]] bool Take(int64_t bytes) {
    int64_t used = used_bytes_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_bytes_ - used) return false;
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(int64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_bytes_; }

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace tetrad
