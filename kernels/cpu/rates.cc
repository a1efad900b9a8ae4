// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rates.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/cpu/tile_kernel.h"

namespace tetrad::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Runs work(thread, repeat) on all threads at once, `repeats` times; the seconds
// from the common start to the last end, in the fastest repetition.
template <class Work>
double BestSeconds(int threads, int repeats, const Work& work) {
  double best = 1e30;
  Clock::time_point start;
  const auto on_phase = [&, ends = false]() mutable noexcept {
    const Clock::time_point now = Clock::now();
    if (ends) best = std::min(best, std::chrono::duration<double>(now - start).count());
    start = now;
    ends = !ends;
  };
  std::barrier phase(threads, on_phase);
  const auto body = [&](int thread) {
    for (int i = 0; i < repeats; ++i) {
      phase.arrive_and_wait();
      work(thread, i);
      phase.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(body, i);
    body(0);
  }
  return best;
}

uint64_t Sum(std::span<const std::byte> bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + sizeof(sums) <= bytes.size(); i += sizeof(sums)) {
    uint64_t words[8];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    for (int j = 0; j < 8; ++j) sums[j] += words[j];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

double MeasureFmaFlops(InstructionSet set, int threads) {
  // Repetitions shorter than a scheduler's time slice: some run undisturbed.
  constexpr int kRepeats = 80;
  constexpr double kSecondsPerRepeat = 0.001;
  const auto spin = FunctionsOf(set).spin_fma;
  constexpr int64_t kTrial = 10000;
  double flops = 0;
  const double trial =
      BestSeconds(1, 2, [&](int, int) { flops = static_cast<double>(spin(kTrial)); });
  const auto rounds = static_cast<int64_t>(kTrial * std::max(1.0, kSecondsPerRepeat / trial));
  const double seconds = BestSeconds(threads, kRepeats, [&](int, int) { spin(rounds); });
  return flops / kTrial * static_cast<double>(rounds) * threads / seconds;
}

double MeasureReadBytesPerSecond(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr size_t kWindows = 32;
  const AlignedBuffer buffer(kBytes);
  const size_t share = kBytes / kWindows / static_cast<size_t>(threads) / 64 * 64;
  const auto part = [&](int thread, int repeat) {
    const size_t window = static_cast<size_t>(repeat) % kWindows * (kBytes / kWindows);
    return buffer.bytes().subspan(window + share * static_cast<size_t>(thread), share);
  };
  // Every thread brings in the pages it will read.
  BestSeconds(threads, kWindows, [&](int thread, int repeat) {
    const std::span<std::byte> bytes = part(thread, repeat);
    std::memset(bytes.data(), thread + 1, bytes.size());
  });
  std::atomic<uint64_t> sink{0};
  const double seconds = BestSeconds(
      threads, kWindows, [&](int thread, int repeat) { sink += Sum(part(thread, repeat)); });
  return static_cast<double>(share) * threads / seconds;
}

}  // namespace tetrad::cpu
