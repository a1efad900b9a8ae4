// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs one CTA of a kernel on the CPU, for tests without a device: its threads
// are fibers of the calling thread, switched where they wait for each other.
// Serial, so it finds no data race; what it finds is wrong indices, missing
// barriers that order matters to, and wrong arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ucontext.h>

namespace tetrad::cuda::emulation {

struct Index {
  uint32_t x;
};

class Cta {
 public:
  Cta(uint32_t block, uint32_t grid, uint32_t threads, size_t shared_bytes);

  // Runs `kernel` as every thread of the CTA, to the end.
  void Run(const std::function<void()>& kernel);

  // The CTA that runs on this thread; device code has no other way to know.
  static Cta& Current();

  // Of the fiber that calls.
  uint32_t thread() const { return running_; }
  uint32_t block() const { return block_; }
  uint32_t grid() const { return grid_; }
  uint32_t threads() const { return static_cast<uint32_t>(fibers_.size()); }

  // Waits for all threads that have not returned.
  void Barrier();
  // Waits for the 32 lanes of the warp; `values` of all of them, [lane][value].
  // What is returned holds until the warp's next exchange but one.
  static constexpr size_t kValues = 8;
  using Lanes = std::array<std::array<uint32_t, kValues>, 32>;
  const Lanes& Exchange(std::span<const uint32_t> values);

  // Checked access to dynamic shared memory.
  std::byte* Shared(uint32_t address, size_t bytes);
  // A copy that happens when the thread waits for it, no sooner.
  void CopyLater(uint32_t to, const void* from);
  void FinishCopies();

 private:
  struct Copy {
    uint32_t to;
    const void* from;
  };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    bool done = false;
    uint64_t barriers = 0;   // reached
    uint64_t exchanges = 0;  // reached
    std::vector<Copy> copies;
  };
  struct Warp {
    uint64_t arrivals = 0;
    std::array<Lanes, 2> buffers;
  };
  static void Enter();
  void Yield();

  uint32_t block_;
  uint32_t grid_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;
  ucontext_t outside_;
  const std::function<void()>* kernel_ = nullptr;
  uint32_t running_ = 0;
  uint32_t live_ = 0;
  uint32_t at_barrier_ = 0;
  uint64_t barriers_passed_ = 0;
};

}  // namespace tetrad::cuda::emulation
