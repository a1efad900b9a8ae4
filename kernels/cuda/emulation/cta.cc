// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/emulation/cta.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tetrad::cuda::emulation {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kCopyBytes = 16;

thread_local Cta* current = nullptr;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated CTA: %s\n", what);
  std::abort();
}

}  // namespace

Cta::Cta(uint32_t block, uint32_t grid, uint32_t threads, size_t shared_bytes)
    : block_(block), grid_(grid), fibers_(threads), warps_(threads / 32), shared_(shared_bytes) {
  if (threads % 32 != 0) Fail("warps are whole");
  for (Fiber& fiber : fibers_) fiber.stack.reset(new std::byte[kStackBytes]);
  // What nobody wrote is no number that tests could mistake for one.
  if (!shared_.empty()) std::memset(shared_.data(), 0xFF, shared_.size());
}

Cta& Cta::Current() { return *current; }

void Cta::Enter() {
  Cta& cta = Current();
  (*cta.kernel_)();
  cta.fibers_[cta.running_].done = true;
  --cta.live_;
  cta.Yield();
}

void Cta::Run(const std::function<void()>& kernel) {
  kernel_ = &kernel;
  current = this;
  live_ = threads();
  for (Fiber& fiber : fibers_) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Cta::Enter, 0);
  }
  running_ = 0;
  swapcontext(&outside_, &fibers_[0].context);
  current = nullptr;
}

// Gives the turn to the next thread that has not returned.
void Cta::Yield() {
  Fiber& from = fibers_[running_];
  if (live_ == 0) {
    swapcontext(&from.context, &outside_);
  }
  do {
    running_ = (running_ + 1) % threads();
  } while (fibers_[running_].done);
  Fiber& to = fibers_[running_];
  if (&to != &from) swapcontext(&from.context, &to.context);
}

void Cta::Barrier() {
  Fiber& fiber = fibers_[running_];
  ++fiber.barriers;
  ++at_barrier_;
  while (barriers_passed_ < fiber.barriers) {
    if (at_barrier_ >= live_) {
      at_barrier_ = 0;
      ++barriers_passed_;
      return;
    }
    Yield();
  }
}

const Cta::Lanes& Cta::Exchange(std::span<const uint32_t> values) {
  if (values.size() > kValues) Fail("an exchange has few values");
  Fiber& fiber = fibers_[running_];
  Warp& warp = warps_[running_ / 32];
  Lanes& lanes = warp.buffers[fiber.exchanges % 2];
  std::copy(values.begin(), values.end(), lanes[running_ % 32].begin());
  ++fiber.exchanges;
  ++warp.arrivals;
  while (warp.arrivals < 32 * fiber.exchanges) Yield();
  return lanes;
}

std::byte* Cta::Shared(uint32_t address, size_t bytes) {
  if (address % bytes != 0) Fail("misaligned shared address");
  if (address + bytes > shared_.size()) Fail("shared address out of range");
  return shared_.data() + address;
}

void Cta::CopyLater(uint32_t to, const void* from) {
  fibers_[running_].copies.push_back({to, from});
}

void Cta::FinishCopies() {
  for (const Copy& copy : fibers_[running_].copies) {
    std::memcpy(Shared(copy.to, kCopyBytes), copy.from, kCopyBytes);
  }
  fibers_[running_].copies.clear();
}

}  // namespace tetrad::cuda::emulation
