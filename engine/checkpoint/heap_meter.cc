// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/heap_meter.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

std::atomic<size_t> alive{0};
std::atomic<size_t> highest{0};

}  // namespace

void* operator new(size_t bytes) {
  void* memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = alive += malloc_usable_size(memory);
  size_t seen = highest.load();
  while (seen < now && !highest.compare_exchange_weak(seen, now)) {
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) alive -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace tetrad::testing {

HeapMeter::HeapMeter() : before_(alive.load()) { highest = before_; }

size_t HeapMeter::peak() const { return highest.load() - before_; }

}  // namespace tetrad::testing
