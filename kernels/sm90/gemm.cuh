// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper grouped GEMM: C = tokens * weights^T over a list of tiles for each CTA, one
// CTA a multiprocessor. Warpgroup 0 is the producer (one thread of it); the others are
// consumers, two warpgroups for each strip of 128 rows of weights. Both walk the same
// list; ring.cuh has the memory between them and who waits for whom.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/ptx.cuh"
#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/expand_weights.cuh"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/live_tiles.cuh"
#include "kernels/sm90/main_loop.cuh"
#include "kernels/sm90/packed_weights.h"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"

namespace tetrad::sm90 {

// Where the CTA's list begins.
__device__ __forceinline__ const TileEntry* ListOf(const GemmArguments& arguments) {
  const TileEntry* const lists =
      arguments.live.m_source == MSource::kHost ? arguments.tiles : arguments.live.lists;
  return lists + int64_t{blockIdx.x} * arguments.tiles_per_cta;
}

// A strip that a tile lacks (its columns end before) is not fetched; its consumers run
// over whatever the slot holds and store nothing.
template <class I>
__device__ __forceinline__ void Produce(const GemmArguments& arguments, const Shared<I>& shared) {
  RingPosition<I> at;
  at.parity = 1;
  const TileEntry* tile = ListOf(arguments);
  bool waited = false;
  for (; tile->width >= 0; ++tile) {
    const int which = tile->width;
    int width = 0, per_slot = 1;
#pragma unroll
    for (int w = 0; w < I::kWidths; ++w) {
      if (w == which) {
        width = I::Width(w);
        per_slot = I::Steps(I::Width(w));
      }
    }
    const CUtensorMap* map = arguments.tokens + which;
    const uint8_t* weights = arguments.weights + int64_t{tile->block} * kBlockBytes;
    const int steps = tile->steps;
    const int token = tile->token;
    const int strips = I::kStrips > 1 && tile->columns > kBlockRows ? 2 : 1;
    for (int step = 0; step < steps; step += per_slot) {
      const int count = min(per_slot, steps - step);
      const uint32_t full = shared.Full(at.slot);
      const uint32_t slot = shared.Slot(at.slot);
      WaitFor(shared.Empty(at.slot), at.parity);
      ArriveExpecting(full, count * (strips * kBlockBytes + width * kTokenRowBytes));
      CopyBulk(slot + per_slot * width * kTokenRowBytes, weights, count * kBlockBytes, full);
      if (strips > 1) {
        CopyBulk(slot + per_slot * (width * kTokenRowBytes + kBlockBytes),
                 weights + int64_t{steps} * kBlockBytes, count * kBlockBytes, full);
      }
      // Weights are there before any launch; tokens may be of the grid before this one.
      if (!waited) {
        WaitForPriorGrid();
        waited = true;
      }
      for (int i = 0; i < count; ++i) {
        CopyBox(slot + i * width * kTokenRowBytes, map, (step + i) * kBlockK, token, full);
      }
      weights += count * kBlockBytes;
      at.Advance();
    }
  }
}

template <class I, class Format>
__device__ __forceinline__ void Consume(const GemmArguments& arguments, const Shared<I>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slab = warp % kSlabs;
  const LanePlace place = {slab * kSlabCodeBytes + lane * 16u,
                           kBlockCodeBytes + slab * kSlabScaleBytes + lane / 4 * 8u};
  const bool elected = lane == 0;
  RingPosition<I> at;
  const TileEntry* tile = ListOf(arguments);
  WaitForPriorGrid();
  while (true) {
    const int which = Uniform(tile->width);
    if (Uniformly(which < 0)) break;
    const int steps = Uniform(tile->steps);
    const auto run = [&]<int kWidth>() {
      float acc[kWidth / 2];
      const uint32_t strip = warp / kSlabs * (I::Steps(kWidth) * kBlockBytes);
      MultiplyTile<I, Format, kWidth>(shared, at, steps,
                                      {strip + place.codes, strip + place.scales}, elected, acc);
      StoreTile<kWidth>(arguments, *tile, warp, lane, acc);
    };
    if (Uniformly(which == 0)) run.template operator()<I::Width(0)>();
    if constexpr (I::kWidths > 1) {
      if (Uniformly(which == 1)) run.template operator()<I::Width(1)>();
    }
    if constexpr (I::kWidths > 2) {
      if (Uniformly(which == 2)) run.template operator()<I::Width(2)>();
    }
    if constexpr (I::kWidths > 3) {
      if (Uniformly(which == 3)) run.template operator()<I::Width(3)>();
    }
    static_assert(kMaxWidths == 4);
    ++tile;
  }
}

// By a thread that has nothing else to do: a CTA without tiles begins, too.
__device__ __forceinline__ void NoteBegin(const GemmArguments& arguments) {
  if (!arguments.begins || blockIdx.x != 0) return;
  WaitForPriorGrid();
  arguments.state->begun_ns = cuda::GlobalTimer();
}

template <class I, class Format>
__device__ __forceinline__ void RunGemm(const GemmArguments& arguments) {
  extern __shared__ uint8_t dynamic[];
  const Shared<I> shared = Shared<I>::At(SharedAddress(dynamic));
  if (threadIdx.x == 0) shared.InitBarriers();
  __syncthreads();
  LetNextGridStart();
  if (arguments.live.m_source != MSource::kHost) {
    // The slots are free until the first copy.
    constexpr int kKept = KeptGroups<I>(I::kSlots * I::kSlotBytes);
    auto& scratch =
        *reinterpret_cast<LiveScratch<I, kKept>*>(dynamic + shared.slots - SharedAddress(dynamic));
    static_assert(sizeof(scratch) <= I::kSlots * I::kSlotBytes);
    WaitForPriorGrid();
    // Opaque: what the roles make of it must not be carried over from here.
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    ListFormer<I, kKept>(arguments.live, arguments.types, arguments.tiles_per_cta, scratch, thread)
        .Form(&arguments.state->error_word);
    FenceAsyncProxy();
    __syncthreads();
  }
  if (threadIdx.x < 128) {
    GiveRegisters<I::kProducerRegisters>();
    // In this order: the other way round ptxas spills registers of `decode`.
    if (threadIdx.x == 32) NoteBegin(arguments);
    if (threadIdx.x == 0) Produce<I>(arguments, shared);
  } else {
    TakeRegisters<I::kConsumerRegisters>();
    Consume<I, Format>(arguments, shared);
  }
}

// The entry point of one row of TETRAD_SM90_INSTANCES.
#define TETRAD_SM90_ENTRY(symbol, name, Format)                                                 \
  extern "C" __global__ void __launch_bounds__(InstanceAt<IndexOfInstance(#name)>::kThreads, 1) \
      symbol(const __grid_constant__ GemmArguments arguments) {                                 \
    RunGemm<InstanceAt<IndexOfInstance(#name)>, Format>(arguments);                             \
  }

}  // namespace tetrad::sm90
