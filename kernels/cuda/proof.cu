// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fills and compares memory on the device (proof.h), 16 bytes a thread and turn;
// what is left of the length goes byte by byte.
#include <cstdint>

#include "kernels/cuda/proof.h"

namespace tetrad::cuda {
namespace {

constexpr int kChunk = 16;

__device__ int64_t FirstChunk() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t ChunkStride() { return int64_t{gridDim.x} * blockDim.x; }

__device__ uint32_t DifferentBytes(uint32_t x, uint32_t y) { return __popc(__vcmpne4(x, y)) / 8; }

}  // namespace
}  // namespace tetrad::cuda

extern "C" __global__ void __launch_bounds__(tetrad::cuda::kProofThreads)
    tetrad_proof_fill(uint8_t* out, int64_t bytes, uint32_t seed, tetrad::cuda::ProofFill fill) {
  using namespace tetrad::cuda;
  const int64_t chunks = bytes / kChunk;
  for (int64_t i = FirstChunk(); i < chunks; i += ChunkStride()) {
    const uint64_t word = static_cast<uint64_t>(i) * 4;
    reinterpret_cast<uint4*>(out)[i] =
        make_uint4(ProofWord(fill, seed, word), ProofWord(fill, seed, word + 1),
                   ProofWord(fill, seed, word + 2), ProofWord(fill, seed, word + 3));
  }
  const int64_t at = chunks * kChunk + FirstChunk();
  if (at < bytes) {
    out[at] =
        static_cast<uint8_t>(ProofWord(fill, seed, static_cast<uint64_t>(at) / 4) >> (at % 4 * 8));
  }
}

extern "C" __global__ void __launch_bounds__(tetrad::cuda::kProofThreads)
    tetrad_proof_compare(const uint8_t* x, const uint8_t* y, int64_t bytes, uint64_t* different) {
  using namespace tetrad::cuda;
  const int64_t chunks = bytes / kChunk;
  uint64_t found = 0;
  for (int64_t i = FirstChunk(); i < chunks; i += ChunkStride()) {
    const uint4 a = reinterpret_cast<const uint4*>(x)[i];
    const uint4 b = reinterpret_cast<const uint4*>(y)[i];
    found += DifferentBytes(a.x, b.x) + DifferentBytes(a.y, b.y) + DifferentBytes(a.z, b.z) +
             DifferentBytes(a.w, b.w);
  }
  const int64_t at = chunks * kChunk + FirstChunk();
  if (at < bytes) found += x[at] != y[at];
  if (found != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(different),
              static_cast<unsigned long long>(found));
  }
}
