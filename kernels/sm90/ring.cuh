// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The ring of slots through which the producer hands weights and tokens to the
// consumers: an instance as a compile-time type, where everything lies in
// shared memory, and a position in the ring. It runs on across tiles of all widths.
//
// Shared memory, from the first multiple of 1024 on:
//
//   | slot 0 | slot 1 | ... | slot kSlots - 1 | full 0 .. | empty 0 .. |
//
// One slot, for tiles of width W, of which it holds S = Steps(W) K steps of 64 k (the
// last slot of a tile fewer, at the same places):
//
//   byte 0                         S * W * 128            S * (W * 128 + 4608)   kSlotBytes
//        | tokens                  | strip 0 of weights   | strip 1, if any   |  |
//        | S boxes of W rows of    | S blocks of 4608     | S blocks of 4608  |  |
//        | 128 bytes, swizzled     | (packed_weights.h)   |                   |  |
//
//   barrier   arrives, in one phase                       waits
//   full i    the producer, once, with the number of      all consumers, before they
//             bytes that its copies then bring            read slot i
//   empty i   lane 0 of each of the 8 * kStrips consumer  the producer, before it
//             warps, after the last wgmma that reads      fills slot i again
//             slot i has ended
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/sm90/instances.h"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"

namespace tetrad::sm90 {

inline constexpr int kTokenRowBytes = kBlockK * 2;  // of a K step
inline constexpr int kBarrierBytes = 8;
inline constexpr int kSlotAlignment = 1024;  // of the 128-byte swizzle: eight rows
inline constexpr int kStripWarps = 8;        // two warpgroups; a warp takes a slab
static_assert(kTokenRowBytes == 128 && kStripWarps == kSlabs);

consteval int IndexOfInstance(std::string_view name) {
  int i = 0;
  while (kInstances[i].name != name) ++i;
  return i;
}

// kInstances[kIndex] as a type.
template <int kIndex>
struct InstanceAt {
  static constexpr Instance kInstance = kInstances[kIndex];
  static constexpr int kStrips = kInstance.strips;
  static constexpr int kSlotBytes = kInstance.slot_bytes;
  static constexpr int kSlots = kInstance.slots;
  static constexpr int kThreads = Threads(kInstance);

  // Of a local copy: device code cannot fold what it reads through a reference.
  static constexpr int Width(int i) {
    constexpr Instance kCopy = kInstances[kIndex];
    return kCopy.widths[i];
  }
  static constexpr int Steps(int width) {
    constexpr Instance kCopy = kInstances[kIndex];
    return StepsPerSlot(kCopy, width);
  }
  static consteval int CountWidths() {
    int count = 0;
    while (count < kMaxWidths && Width(count) != 0) ++count;
    return count;
  }
  static constexpr int kWidths = CountWidths();

  // What a warpgroup asks for with setmaxnreg; a thread starts with its equal share.
  static constexpr int kProducerRegisters = kStrips == 1 ? 40 : 24;
  static constexpr int kConsumerRegisters = kStrips == 1 ? 232 : 112;

  static consteval bool IsSound() {
    for (int i = 0; i < kWidths; ++i) {
      const int width = Width(i);
      const int bytes = Steps(width) * StepBytes(kInstance, width);
      // Boxes begin at multiples of the swizzle; mbarrier counts below 2^20 bytes.
      if (width * kTokenRowBytes % kSlotAlignment != 0 || width > 256) return false;
      if (bytes > kSlotBytes || bytes >= 1 << 20) return false;
      if (StepBytes(kInstance, width) != width * kTokenRowBytes + kStrips * kBlockBytes)
        return false;
    }
    return kWidths > 0;
  }
  static_assert(IsSound());
  static_assert(kStrips == 1 || kStrips == 2);
  static_assert(kThreads == 128 + 32 * kStripWarps * kStrips);
  static_assert(kSlotBytes % kSlotAlignment == 0 && kBlockBytes % 16 == 0);
  static_assert(kSlots * (kSlotBytes + 2 * kBarrierBytes) + kSlotAlignment ==
                SharedBytes(kInstance));
  static_assert(SharedBytes(kInstance) <= 227 * 1024);
  // setmaxnreg deals in what the CTA got at launch: what ptxas takes, which the bound of
  // threads keeps to a multiple of 8 that fits the file.
  static_assert(128 * kProducerRegisters + 32 * kStripWarps * kStrips * kConsumerRegisters <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// The addresses of the diagram.
template <class I>
struct Shared {
  uint32_t slots;
  uint32_t full;
  uint32_t empty;

  __device__ static Shared At(uint32_t dynamic) {
    const uint32_t base = (dynamic + kSlotAlignment - 1) & ~uint32_t{kSlotAlignment - 1};
    const uint32_t barriers = base + I::kSlots * I::kSlotBytes;
    return {base, barriers, barriers + I::kSlots * kBarrierBytes};
  }
  // By one thread; the others wait for it at a barrier of the CTA.
  __device__ void InitBarriers() const {
    for (int i = 0; i < I::kSlots; ++i) {
      InitBarrier(Full(i), 1);
      InitBarrier(Empty(i), kStripWarps * I::kStrips);
    }
    FenceBarrierInit();
  }
  __device__ uint32_t Slot(uint32_t i) const { return slots + i * I::kSlotBytes; }
  __device__ uint32_t Full(uint32_t i) const { return full + i * kBarrierBytes; }
  __device__ uint32_t Empty(uint32_t i) const { return empty + i * kBarrierBytes; }
};

// A slot and the parity of the phase of its barriers to wait for next. A producer
// begins with parity 1: all slots are empty before their first use.
template <class I>
struct RingPosition {
  uint32_t slot = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++slot == I::kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace tetrad::sm90
