// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The portable kernel (portable.h): which tiles a CTA computes, and the entry
// points. Shared memory: the two stages of portable_layout.h, the tile at work,
// and the walk over groups with device-side M.
#include <cstdint>

#include "kernels/cuda/device_m.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/portable_epilogue.cuh"
#include "kernels/cuda/portable_multiply.cuh"
#include "kernels/cuda/portable_tile.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tetrad::cuda {
namespace {

// What a CTA knows of its tiles; shared memory.
struct TileQueue {
  TileWork work;
  GroupWalk walk;
};

// Forms the CTA's tile number `i` in queue.work; all threads. False if it has no
// such tile. The work of the call before may be overwritten at once.
__device__ bool NextTile(const LaunchArguments& arguments, int64_t i, TileQueue& queue) {
  __syncthreads();
  bool found = true;
  if (arguments.m_source == MSource::kHost) {
    const int32_t* const begin = arguments.cta_begin + blockIdx.x;
    const int64_t at = begin[0] + i;
    found = at < begin[1];
    if (found && threadIdx.x == 0) {
      const Tile tile = arguments.tiles[at];
      queue.work = FormTileWork(arguments, arguments.groups[tile.group], tile);
    }
  } else {
    found = FindTile(arguments, queue.walk, blockIdx.x + i * gridDim.x,
                     [&](const GroupEntry& group, const Tile& tile) {
                       queue.work = FormTileWork(arguments, group, tile);
                     });
  }
  __syncthreads();
  return found;
}

template <ActivationType type>
__device__ void RunPortable(const LaunchArguments& arguments) {
  __shared__ TileQueue queue;
  const uint32_t stages = DynamicShared();
  constexpr float kScale = OperandOf<type>::Type::kOperandScale;
  constexpr float kUnscale = 1 / (type == ActivationType::kNvfp4 ? kScale * kScale : kScale);
  if (blockIdx.x == 0 && threadIdx.x == 0) arguments.state->begun_ns = GlobalTimer();
  if (arguments.m_source != MSource::kHost) BeginWalk(arguments, queue.walk);
  for (int64_t i = 0; NextTile(arguments, i, queue); ++i) {
    Accumulators acc;
    MultiplyTile<type>(queue.work, arguments.types, stages, acc);
    StoreTile(arguments.types, queue.work, kUnscale, stages, acc);
  }
}

}  // namespace
}  // namespace tetrad::cuda

#define TETRAD_PORTABLE_ENTRY(name, type)                                                    \
  extern "C" __global__ void __launch_bounds__(tetrad::cuda::kPortableThreads,               \
                                               tetrad::cuda::kPortableCtasPerMultiprocessor) \
      name(const __grid_constant__ tetrad::cuda::LaunchArguments arguments) {                \
    tetrad::cuda::RunPortable<tetrad::ActivationType::type>(arguments);                      \
  }

TETRAD_PORTABLE_ENTRY(tetrad_portable_nvfp4, kNvfp4)
TETRAD_PORTABLE_ENTRY(tetrad_portable_fp16, kFp16)
TETRAD_PORTABLE_ENTRY(tetrad_portable_bf16, kBf16)
