// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PTX instructions of compute capability 9.0a that the Hopper kernel uses, one a
// function; each names its section of the PTX ISA. wgmma is in wgmma.cuh.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/ptx.cuh"

namespace tetrad::sm90 {

using cuda::SharedAddress;

// "mbarrier.init", "fence.mbarrier_init"
__device__ inline void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// "mbarrier.arrive". Without scope qualifiers: those of a cluster cost a fence of the device.
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// "mbarrier.try_wait": until the phase of this parity has ended.
__device__ inline void WaitFor(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// "cp.async.bulk": `bytes` and both addresses are multiples of 16.
__device__ inline void CopyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// "cp.async.bulk.tensor": the box at column `x`, row `y`.
__device__ inline void CopyBox(uint32_t to, const CUtensorMap* map, int32_t x, int32_t y,
                               uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// "membar/fence": what this thread did in shared memory comes before copies that the engine
// begins after it.
__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// "setmaxnreg"
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// "griddepcontrol": the kernel launched before this one, and the one after it.
__device__ inline void WaitForPriorGrid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void LetNextGridStart() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// "ld.shared"
__device__ inline uint4 LoadShared16(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
__device__ inline uint2 LoadShared8(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}

// "movmatrix": an 8 x 8 matrix of 16-bit numbers, transposed within the warp.
__device__ inline uint32_t TransposeMatrix(uint32_t fragment) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(fragment));
  return result;
}

// "cvt": two numbers, `low` to the lower half.
__device__ inline uint32_t ConvertPair(bool bf16, float low, float high) {
  uint32_t pair;
  if (bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

}  // namespace tetrad::sm90
