// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PTX instructions that CUDA C++ has no plain spelling for, one a function; each
// names its section of the PTX ISA. All exist from compute capability 8.0 on.
#pragma once

#if defined(__CUDACC__)

#include <cstdint>

namespace tetrad::cuda {

// "Special Registers: %globaltimer": nanoseconds.
__device__ inline uint64_t GlobalTimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

// "Data Movement and Conversion Instructions: st": writes of this thread before it
// are seen by whoever, on the host too, reads the value with acquire.
__device__ inline void StoreRelease(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// "Data Movement and Conversion Instructions: cvta": an address in the shared window.
__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where the dynamic shared memory of the CTA begins; a multiple of 128.
__device__ inline uint32_t DynamicShared() {
  alignas(128) extern __shared__ uint8_t dynamic[];
  return SharedAddress(dynamic);
}

// "Half Precision Floating Point Instructions: mul". Subnormals are kept.
__device__ inline uint32_t MultiplyFp16x2(uint32_t x, uint32_t y) {
  uint32_t result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
  return result;
}

// "Half Precision Floating Point Instructions: fma". mul.bf16x2 needs 9.0; adding
// -0 is no addition.
__device__ inline uint32_t MultiplyBf16x2(uint32_t x, uint32_t y) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(0x80008000u));
  return result;
}

// "Data Movement and Conversion Instructions: cvt". Nearest even, overflow to
// infinity, NaN to 0x7FFF.
__device__ inline uint16_t ConvertToFp16(float value) {
  uint16_t result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
}
__device__ inline uint16_t ConvertToBf16(float value) {
  uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
}

// "Data Movement and Conversion Instructions: st".
__device__ inline void StoreShared(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ inline void StoreShared(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// "Data Movement and Conversion Instructions: ld".
__device__ inline float LoadShared(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// "Data Movement and Conversion Instructions: cp.async": 16 bytes to shared memory.
__device__ inline void CopyAsync(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// "Warp Level Matrix Instructions: ldmatrix".
__device__ inline void LoadMatrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// "Warp Level Matrix Instructions: mma": acc += a * b, m16n8k16, FP32 accumulators.
__device__ inline void MultiplyAddFp16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void MultiplyAddBf16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace tetrad::cuda

#else  // for tests without a device

#include "kernels/cuda/emulation/ptx.h"

#endif
