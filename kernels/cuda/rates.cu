// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The two rates of rates.h.
#include <cstdint>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/rates.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "kernels/cuda/sm90_wgmma.cuh"
#endif

namespace tetrad::cuda {
namespace {

// Two FP16 numbers with no more bits than dequantised FP4 has, either sign: the
// bits that operands hold decide the power, and so the clock, of tensor cores.
__device__ uint32_t Fp4Pair(uint32_t index) {
  const uint32_t bits = index * 2654435761u;
  const uint32_t magnitudes = (bits >> 7 & 0x02000200) + (bits >> 11 & 0x08000800) + 0x38003800;
  return magnitudes | (bits & 0x80008000);  // 0.5, 0.75, 2 or 3
}

// Never true, which the compiler does not know.
__device__ bool Unlikely(float value) { return value == 12345.678f; }

}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Two warpgroups, each 64 rows of A by 256 columns of B, K = 64 a repeat:
//
//   byte   0            8192         16384                49152
//          | A of wg 0  | A of wg 1  | B: 256 rows of 128 |
__device__ void RunMma(uint32_t* sink, int32_t repeats) {
  constexpr int kBytesA = kWgmmaRows * kWgmmaRowBytes;
  constexpr int kBytesB = kWgmmaColumns * kWgmmaRowBytes;
  static_assert(kMmaFlopsPerRepeat == 2 * 2 * kWgmmaRows * kWgmmaColumns * 64);
  static_assert(kRateThreads == 2 * 128);
  alignas(1024) __shared__ uint32_t operands[(2 * kBytesA + kBytesB) / 4];
  for (uint32_t i = threadIdx.x; i < sizeof(operands) / 4; i += kRateThreads) {
    operands[i] = Fp4Pair(i);
  }
  FenceSharedForAsync();
  __syncthreads();
  const uint32_t base = SharedAddress(operands);
  const uint64_t a = WgmmaDescriptor(base + threadIdx.x / 128 * kBytesA);
  const uint64_t b = WgmmaDescriptor(base + 2 * kBytesA);
  float acc[kWgmmaAccumulators] = {};
  WgmmaFence();
  for (int32_t i = 0; i < repeats; ++i) {
#pragma unroll
    for (int k = 0; k < kWgmmaRowBytes; k += kWgmmaKBytes) Wgmma(acc, a + k / 16, b + k / 16);
    WgmmaCommit();
    WgmmaWait<1>();
  }
  WgmmaWait<0>();
  float sum = 0;
#pragma unroll
  for (float value : acc) sum += value;
  if (Unlikely(sum)) *sink = 1;
}

#else

// Eight warps, each kChains independent 16 x 8 tiles.
__device__ void RunMma(uint32_t* sink, int32_t repeats) {
  constexpr int kChains = 16;
  constexpr int kRounds = 8;
  static_assert(kMmaFlopsPerRepeat ==
                int64_t{kRateThreads} / 32 * kChains * kRounds * 2 * 16 * 8 * 16);
  uint32_t a[4];
  uint32_t b[2];
  for (int i = 0; i < 4; ++i) a[i] = Fp4Pair(threadIdx.x * 4 + i);
  for (int i = 0; i < 2; ++i) b[i] = Fp4Pair(threadIdx.x * 2 + i + 4096);
  float acc[kChains][4] = {};
  // Unrolled by the compiler, the image for 10.0 is seven times as large.
#pragma unroll 1
  for (int32_t i = 0; i < repeats; ++i) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) MultiplyAddFp16(acc[chain], a, b[0], b[1]);
    }
  }
  float sum = 0;
#pragma unroll
  for (const auto& chain : acc) sum += chain[0] + chain[1] + chain[2] + chain[3];
  if (Unlikely(sum)) *sink = 1;
}

#endif

}  // namespace tetrad::cuda

extern "C" __global__ void __launch_bounds__(tetrad::cuda::kRateThreads, tetrad::cuda::kMmaRateCtas)
    tetrad_rate_mma(uint32_t* sink, int32_t repeats) {
  tetrad::cuda::RunMma(sink, repeats);
}

extern "C" __global__ void __launch_bounds__(tetrad::cuda::kRateThreads)
    tetrad_rate_read(const uint8_t* from, int64_t bytes, uint32_t* sink) {
  constexpr int kAhead = 8;  // loads in flight a thread
  const int64_t chunks = bytes / 16;
  const auto* const in = reinterpret_cast<const uint4*>(from);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint32_t seen = 0;
  for (; at + (kAhead - 1) * stride < chunks; at += kAhead * stride) {
    uint4 read[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) read[i] = __ldcs(in + at + i * stride);
#pragma unroll
    for (const uint4& r : read) seen ^= r.x ^ r.y ^ r.z ^ r.w;
  }
  for (; at < chunks; at += stride) {
    const uint4 r = __ldcs(in + at);
    seen ^= r.x ^ r.y ^ r.z ^ r.w;
  }
  const int64_t rest = chunks * 16 + threadIdx.x;
  if (blockIdx.x == 0 && rest < bytes) seen ^= from[rest];
  if (seen == 0x9E3779B9) *sink = seen;
}
