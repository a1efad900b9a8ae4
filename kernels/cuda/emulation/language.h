// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// As much of CUDA C++ as our device code uses, for a C++ compiler: words,
// indices and intrinsics. Included before device code, by emulation/kernels.cc
// and tests of device code only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/emulation/cta.h"

// The names are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
// One CTA runs at a time.
#define __shared__ static

#define threadIdx \
  (::tetrad::cuda::emulation::Index{::tetrad::cuda::emulation::Cta::Current().thread()})
#define blockIdx \
  (::tetrad::cuda::emulation::Index{::tetrad::cuda::emulation::Cta::Current().block()})
#define blockDim \
  (::tetrad::cuda::emulation::Index{::tetrad::cuda::emulation::Cta::Current().threads()})
#define gridDim (::tetrad::cuda::emulation::Index{::tetrad::cuda::emulation::Cta::Current().grid()})

struct uint4 {
  uint32_t x = 0, y = 0, z = 0, w = 0;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

using std::max;
using std::min;

inline void __syncthreads() { ::tetrad::cuda::emulation::Cta::Current().Barrier(); }

template <class T>
T __ldg(const T* at) {
  return *at;
}
inline float __fmul_rn(float x, float y) { return x * y; }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline int __popc(uint32_t value) { return std::popcount(value); }
inline uint32_t __vcmpne4(uint32_t x, uint32_t y) {
  uint32_t result = 0;
  for (uint32_t byte = 0xFF; byte != 0; byte <<= 8) {
    if (((x ^ y) & byte) != 0) result |= byte;
  }
  return result;
}

template <class T>
T __shfl_up_sync(uint32_t, T value, int distance) {
  static_assert(sizeof(T) % 4 == 0);
  using Words = std::array<uint32_t, sizeof(T) / 4>;
  auto& cta = ::tetrad::cuda::emulation::Cta::Current();
  const auto words = std::bit_cast<Words>(value);
  const auto& lanes = cta.Exchange(words);
  const int lane = static_cast<int>(cta.thread() % 32);
  const auto& from = lanes[static_cast<size_t>(lane < distance ? lane : lane - distance)];
  Words shifted;
  std::copy_n(from.begin(), shifted.size(), shifted.begin());
  return std::bit_cast<T>(shifted);
}

inline uint32_t __ballot_sync(uint32_t, bool vote) {
  auto& cta = ::tetrad::cuda::emulation::Cta::Current();
  const uint32_t value = vote ? 1 : 0;
  const auto& lanes = cta.Exchange({&value, 1});
  uint32_t votes = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane) votes |= lanes[lane][0] << lane;
  return votes;
}

template <class T>
T atomicOr(T* at, T bits) {
  const T before = *at;
  *at |= bits;
  return before;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
