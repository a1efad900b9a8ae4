// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts heap allocations of the whole process while an executor launches on
// the CPU device, and while a binding takes other memory: none are allowed once
// it is warm.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/executor.h"
#include "engine/steady_clock.h"
#include "engine/support/doorbell.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Not inlined: next to a new expression the compiler takes malloc() and free()
// for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
// Of its own: a sanitizer's would not come from malloc().
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace tetrad {
namespace {

struct Bound {
  std::shared_ptr<const Plan> plan;
  OperandBlocks blocks;
  BindingId binding;
};

Bound Bind(CpuDevice& device, MSource source) {
  Signature s;
  s.form = GroupForm::kStacked;
  s.m_source = source;
  s.groups.assign(5, {source == MSource::kHost ? 7 : 0, 96, 128});
  s.capacity_rows = source == MSource::kHost ? 0 : 35;
  Bound bound;
  bound.plan = std::make_shared<const Plan>(*BuildPlan(*Canonicalize(s), device.limits()));
  const OperandLayout& layout = bound.plan->layout;
  const auto block = [&](int64_t bytes) { return BlockRef{device.Allocate(bytes)->id, 0, bytes}; };
  bound.blocks = {block(layout.a_bytes),
                  block(layout.a_scale_bytes),
                  block(WeightCodeBytes(s)),
                  block(WeightScaleBytes(s)),
                  block(layout.c_bytes),
                  block(20),
                  {},
                  {}};
  if (layout.m_values > 0) bound.blocks.m_values = block(layout.m_values * 4);
  bound.binding = *device.Bind(bound.plan, bound.blocks);
  return bound;
}

TEST(ExecutorAllocationTest, SteadyStateAllocatesNothing) {
  for (const MSource source : {MSource::kHost, MSource::kOffsets, MSource::kCounts}) {
    auto doorbell = std::make_shared<Doorbell>();
    auto device =
        *CpuDevice::Create({.threads = 2, .memory_bytes = 1 << 24, .measure_rates = false},
                           [doorbell] { doorbell->Ring(); });
    const Bound bound = Bind(*device, source);
    Executor executor(*device, {.queue_depth = 16}, &SteadyNow);
    std::atomic<int> ended{0};
    Launch launches[8];
    const auto round = [&](int count) {
      for (int i = 0; i < count; ++i) {
        ended = 0;
        for (Launch& launch : launches) {
          launch.binding = bound.binding;
          launch.context = &ended;
          launch.done = [](Launch* l) { ++*static_cast<std::atomic<int>*>(l->context); };
          ASSERT_TRUE(executor.Submit(&launch).ok());
        }
        while (ended < 8) {
          executor.Step();
          doorbell->WaitUntil(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
        }
      }
    };
    round(20);
    const int64_t before = allocations.load();
    round(500);
    EXPECT_EQ(allocations.load() - before, 0) << "over 4,000 launches";
    for (const Launch& launch : launches) EXPECT_EQ(launch.outcome, LaunchOutcome::kDone);
  }
}

TEST(ExecutorAllocationTest, RebindingAllocatesNothing) {
  for (const MSource source : {MSource::kHost, MSource::kOffsets, MSource::kCounts}) {
    auto doorbell = std::make_shared<Doorbell>();
    auto device =
        *CpuDevice::Create({.threads = 2, .memory_bytes = 1 << 24, .measure_rates = false},
                           [doorbell] { doorbell->Ring(); });
    const Bound bound = Bind(*device, source), other = Bind(*device, source);
    int64_t refused = 0;
    const auto round = [&](int count) {
      for (int i = 0; i < count; ++i) {
        refused += !device->Rebind(bound.binding, (i % 2 == 0 ? other : bound).blocks).ok();
        refused += !device->Launch(LaneId{0}, bound.binding, 1).ok();
        Completion completion;
        while (device->Poll({&completion, 1}) == 0) {
          doorbell->WaitUntil(std::chrono::steady_clock::time_point::max());
        }
      }
    };
    round(20);
    const int64_t before = allocations.load();
    round(1000);
    EXPECT_EQ(allocations.load() - before, 0) << "over 1,000 rebinds";
    EXPECT_EQ(refused, 0);
  }
}

}  // namespace
}  // namespace tetrad
