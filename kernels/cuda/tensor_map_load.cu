// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads one box through a tensor map, for its test. One CTA; from sm_90 on.
//
//   barrier  arrivals  who arrives           who waits
//   full     1 + bytes thread 0, the engine  all threads
#include <cuda.h>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_map_load.h"

namespace tetrad::cuda {
namespace {

// PTX ISA, "cp.async.bulk.tensor".
__device__ void LoadBox(uint32_t box, const CUtensorMap* map, const TensorMapLoad& load,
                        uint32_t barrier) {
#define TETRAD_LOAD(rank, coordinates, ...)                                                        \
  asm volatile("cp.async.bulk.tensor." rank                                                        \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, " coordinates \
               "], [%2];" ::"r"(box),                                                              \
               "l"(map), "r"(barrier), __VA_ARGS__                                                 \
               : "memory")
  const int32_t* const at = load.at;
  switch (load.rank) {
    case 1:
      TETRAD_LOAD("1d", "{%3}", "r"(at[0]));
      break;
    case 2:
      TETRAD_LOAD("2d", "{%3, %4}", "r"(at[0]), "r"(at[1]));
      break;
    case 3:
      TETRAD_LOAD("3d", "{%3, %4, %5}", "r"(at[0]), "r"(at[1]), "r"(at[2]));
      break;
    case 4:
      TETRAD_LOAD("4d", "{%3, %4, %5, %6}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
      break;
    default:
      TETRAD_LOAD("5d", "{%3, %4, %5, %6, %7}", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                  "r"(at[4]));
      break;
  }
#undef TETRAD_LOAD
}

// PTX ISA, "mbarrier.try_wait".
__device__ bool FirstPhaseEnded(uint32_t barrier) {
  uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier)
      : "memory");
  return ended != 0;
}

extern "C" __global__ void __launch_bounds__(kTensorMapLoadThreads)
    tetrad_tensor_map_load(const __grid_constant__ CUtensorMap map,
                           const __grid_constant__ TensorMapLoad load) {
  extern __shared__ uint8_t memory[];
  const uint32_t misalignment = SharedAddress(memory) % kTensorMapLoadAlignment;
  uint8_t* const box = memory + (misalignment == 0 ? 0 : kTensorMapLoadAlignment - misalignment);
  const uint32_t full = SharedAddress(memory) + kTensorMapLoadWindow + kTensorMapLoadAlignment;

  for (uint32_t i = threadIdx.x; i < load.window_bytes; i += blockDim.x) box[i] = kUntouched;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // The engine's writes come after those above: PTX ISA, "Async proxy".
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                 "r"(load.box_bytes)
                 : "memory");
    LoadBox(SharedAddress(box), &map, load, full);
  }

  const uint64_t deadline = GlobalTimer() + 1'000'000'000;
  bool late = false;
  while (!FirstPhaseEnded(full) && !late) late = GlobalTimer() > deadline;
  if (late) *load.timed_out = 1;
  for (uint32_t i = threadIdx.x; i < load.window_bytes; i += blockDim.x) load.out[i] = box[i];
}

}  // namespace
}  // namespace tetrad::cuda
