// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts heap allocations of a thread that gives bindings back: none are allowed,
// so that it cannot fail.
#include <cstdlib>
#include <new>

#include "engine/cuda/simulated_device.h"

namespace {
thread_local int64_t allocations = 0;
}

// Not inlined: next to a new expression the compiler takes malloc() and free()
// for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const size_t a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
// Of its own: a sanitizer's would not come from malloc().
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace tetrad::cuda {
namespace {

TEST(CudaDeviceAllocationsTest, GivingBindingsBackNeedsNoMemory) {
  constexpr int kBindings = 20;
  SimulatedDevice simulated;
  ASSERT_TRUE(simulated.Create().ok());
  CudaDevice& device = *simulated.device;
  DeviceSample nvfp4(device, {{5, 48, 96}});
  DeviceSample fp16(device, {{5, 48, 96}},
                    {.sample = {.types = {.a_type = ActivationType::kFp16}}});
  std::vector<BindingId> bindings;
  for (int i = 0; i < kBindings; ++i) {
    for (const DeviceSample* sample : {&nvfp4, &fp16}) {
      const auto binding = device.Bind(sample->plan(), sample->blocks());
      ASSERT_TRUE(binding.ok()) << binding.status();
      bindings.push_back(*binding);
    }
  }
  EXPECT_GT(device.execution_use().graphs, kBindings);
  const int64_t before = allocations;
  bool unbound = true;
  for (const BindingId binding : bindings) unbound = device.Unbind(binding).ok() && unbound;
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(unbound);
}

}  // namespace
}  // namespace tetrad::cuda
