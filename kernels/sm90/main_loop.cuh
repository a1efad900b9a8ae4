// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The main loop of a consumer warp: over the K steps of one tile, expand the weights of
// a step while the wgmma of the step before run. Two sets of fragments, one step (64 k,
// four wgmma) a group, one group in flight.
//
// wgmma keeps its pace only if ptxas can prove two things. That warps do not diverge:
// hence every branch here and around is a vote (Uniformly()), though all lanes hold the
// same (the epilogue's need not be). Without, descriptors are made in vector registers and moved
// over (R2UR, twice for each wgmma: 93 instead of 88.5 instructions a step), and some forms of this
// loop were serialised (C7513). And that nothing touches accumulators or fragments in flight: hence
// the pins. The build takes serialised wgmma as an error (cmake/compile-cuda.cmake).
#pragma once

#include <cstdint>

#include "kernels/sm90/expand_weights.cuh"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace tetrad::sm90 {

// What all lanes hold, in a way that the compiler knows it.
__device__ inline int Uniform(int x) { return __reduce_max_sync(0xFFFFFFFFu, x); }
__device__ inline bool Uniformly(bool x) { return __any_sync(0xFFFFFFFFu, x); }

// The products of one K step, as one group of wgmma.
template <class Format, int kWidth>
__device__ __forceinline__ void MultiplyGroup(RawWeights& raw, uint32_t tokens,
                                              uint32_t (&fragment)[kFragmentRegisters],
                                              float (&acc)[kWidth / 2]) {
  Pin(raw);
  Expand<Format>(raw, fragment);
  Pin(fragment);
  const uint32_t descriptor = OperandDescriptor(tokens);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kBlockK / 16; ++k) {
    Wgmma(Format{}, acc, fragment + 4 * k, descriptor + k * kDescriptorStep);
  }
  WgmmaCommit();
}

// acc = the tile's products over `steps` K steps, from slot `at` on. `place` is of the
// lane, from the first block of weights in a slot on; `elected` is one lane.
template <class I, class Format, int kWidth>
__device__ __forceinline__ void MultiplyTile(const Shared<I>& shared, RingPosition<I>& at,
                                             int steps, const LanePlace& place, bool elected,
                                             float (&acc)[kWidth / 2]) {
  constexpr int kPerSlot = I::Steps(kWidth);
  constexpr int kUnroll = kPerSlot == 1 ? 2 : kPerSlot;  // even: fragments alternate
  static_assert(kUnroll % 2 == 0);
  constexpr uint32_t kTokens = kWidth * kTokenRowBytes;  // bytes of a step
  constexpr uint32_t kWeights = kPerSlot * kTokens;      // where they begin in a slot
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) acc[i] = 0;
  uint32_t fragment[2][kFragmentRegisters];
  int iterations = steps / kUnroll;
  if (Uniformly(iterations > 0)) {
    uint32_t slot = shared.Slot(at.slot);
    WaitFor(shared.Full(at.slot), at.parity);
    RawWeights raw = LoadRaw(slot + kWeights, place);
    uint32_t release = 0;  // the barrier of the slot before this one, if of this tile
    while (true) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        // Opaque, so that the address is made anew and not carried around the loop: for
        // `prefill` at width 128 an instruction and a half a step less, elsewhere the same.
        uint32_t index = at.slot;
        asm volatile("" : "+r"(index));
        MultiplyGroup<Format, kWidth>(raw, shared.Slot(index) + u % kPerSlot * kTokens,
                                      fragment[u & 1], acc);
        const uint32_t to_release = release;
        if (u + 1 == kUnroll && Uniformly(--iterations == 0)) break;
        if ((u + 1) % kPerSlot == 0) {
          release = shared.Empty(at.slot);
          at.Advance();
          slot = shared.Slot(at.slot);
          WaitFor(shared.Full(at.slot), at.parity);
        }
        raw = LoadRaw(slot + kWeights + (u + 1) % kPerSlot * kBlockBytes, place);
        WgmmaWait<1>();
        // What a slot's first group waited for were the last products of the slot before.
        if (u % kPerSlot == 0 && elected && to_release != 0) Arrive(to_release);
      }
      if (Uniformly(iterations == 0)) break;
    }
    WgmmaWait<0>();
    if (elected) {
      if (kPerSlot == 1) Arrive(release);
      Arrive(shared.Empty(at.slot));
    }
    at.Advance();
  }
  // Steps that do not fill the unrolled loop, one at a time.
  const int rest = steps % kUnroll;
  for (int step = 0; Uniformly(step < rest); ++step) {
    const int in_slot = step % kPerSlot;
    const uint32_t slot = shared.Slot(at.slot);
    if (Uniformly(in_slot == 0)) WaitFor(shared.Full(at.slot), at.parity);
    RawWeights raw = LoadRaw(slot + kWeights + in_slot * kBlockBytes, place);
    MultiplyGroup<Format, kWidth>(raw, slot + in_slot * kTokens, fragment[0], acc);
    WgmmaWait<0>();
    if (Uniformly(step + 1 == rest || (step + 1) % kPerSlot == 0)) {
      if (elected) Arrive(shared.Empty(at.slot));
      at.Advance();
    }
  }
  // What uses the sums stays behind the last wait.
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

}  // namespace tetrad::sm90
