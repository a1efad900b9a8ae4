// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Waiting without leaving the processor, for what another thread or a device is
// about to do. A thread that slept is back after 5 to 50 µs, one that spins
// after a fraction of one; it takes a processor meanwhile, if nobody else wants it.
#pragma once

#include <chrono>
#include <thread>

namespace tetrad {

// What a thread does between two looks at memory that another writes.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as `ready()` is; false once the steady clock shows `until`.
template <typename Ready>
bool SpinUntil(Ready ready, std::chrono::steady_clock::time_point until) {
  constexpr int kPausesPerLook = 16;  // at the clock, which costs more than one of them
  if (ready()) return true;
  while (std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      Pause();
      if (ready()) return true;
    }
    // Who is waited for may wait for this processor.
    std::this_thread::yield();
  }
  return false;
}

}  // namespace tetrad
