// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random: draws that are a pure function of a seed, on every platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tetrad::simulation {

// Spreads every bit of `value` over all of the result.
constexpr uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_++); }
  // 0 to below `bound`, which is positive.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }
  // Never if `n` is 0.
  bool OneIn(int64_t n) { return n > 0 && Below(n) == 0; }
  template <typename List>
  auto& Pick(List& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  uint64_t state_;
};

}  // namespace tetrad::simulation
