// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random: a small seeded generator (SplitMix64) for test data. Integer and exact
// FP32 arithmetic only, so a seed means the same data on every platform, which
// the distributions of the standard library do not promise. Not for secrets.
// Not thread-safe; copies continue independently from the same point.
#pragma once

#include <cstdint>

namespace tetrad {

class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, limit).
  constexpr uint32_t Below(uint32_t limit) {
    return static_cast<uint32_t>(((Next() >> 32) * limit) >> 32);
  }
  // Uniform in [least, most].
  constexpr int32_t Between(int32_t least, int32_t most) {
    return least + static_cast<int32_t>(Below(static_cast<uint32_t>(most - least + 1)));
  }
  constexpr bool OneIn(uint32_t n) { return Below(n) == 0; }

  // A full 24-bit significand in [1, 2).
  constexpr float Significand() {
    return static_cast<float>((1u << 23) + (Next() >> 41)) * 0x1p-23f;
  }

  // Mean 0, variance 1, bounded by 6: the sum of twelve uniform numbers.
  constexpr float Normal() {
    int32_t sum = -6 * 0x10000 + 6;
    for (int i = 0; i < 3; ++i) {
      const uint64_t bits = Next();
      for (int shift = 0; shift < 64; shift += 16)
        sum += static_cast<int32_t>(bits >> shift & 0xFFFF);
    }
    return static_cast<float>(sum) * 0x1p-16f;
  }

 private:
  uint64_t state_;
};

}  // namespace tetrad
