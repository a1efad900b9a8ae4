// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What handing something to a waiting thread costs: two threads that ring each
// other's doorbell in turn, for a waiter that sleeps at once, one whose spin
// ends too early, and one that spins. One JSON line for each: the time of a hop
// (half a turn) and the processor time of both threads for it.
//
//   hop_bench [REPEATS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <time.h>

#include "engine/support/doorbell.h"

namespace tetrad {
namespace {

constexpr int kTurns = 50'000;

double Seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  double us = 0;
  double cpu_us = 0;
  bool operator<(const Cost& other) const { return us < other.us; }
};

Cost Measure(std::chrono::nanoseconds spin) {
  constexpr auto kForEver = Doorbell::Clock::time_point::max();
  Doorbell there(spin), back(spin);
  const double began = Seconds(CLOCK_MONOTONIC), cpu_began = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      there.WaitUntil(kForEver);
      back.Ring();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    there.Ring();
    back.WaitUntil(kForEver);
  }
  other.join();
  constexpr double kHopsPerUs = 1e6 / (2.0 * kTurns);
  return {(Seconds(CLOCK_MONOTONIC) - began) * kHopsPerUs,
          (Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began) * kHopsPerUs};
}

int Main(int repeats) {
  using std::chrono::microseconds;
  for (const microseconds spin : {microseconds(0), microseconds(1), microseconds(300)}) {
    std::vector<Cost> costs;
    for (int i = 0; i < repeats; ++i) costs.push_back(Measure(spin));
    std::sort(costs.begin(), costs.end());
    const Cost& median = costs[costs.size() / 2];
    std::printf(
        "{\"spin_us\": %lld, \"turns\": %d, \"repeats\": %d, \"hop_us\": %.3f, \"best_us\": %.3f, "
        "\"worst_us\": %.3f, \"cpu_us\": %.3f}\n",
        static_cast<long long>(spin.count()), kTurns, repeats, median.us, costs.front().us,
        costs.back().us, median.cpu_us);
  }
  return 0;
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  return tetrad::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 9);
}
