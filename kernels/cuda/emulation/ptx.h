// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of ptx.cuh on the CPU, by the definitions of the PTX ISA. Sums
// of mma are FP32 chains over ascending k: what tensor cores truncate is not
// imitated.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/emulation/language.h"
#include "kernels/float16.h"

namespace tetrad::cuda {

inline uint64_t GlobalTimer() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

inline void StoreRelease(uint64_t* to, uint64_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}

// Dynamic shared memory begins at 0.
inline uint32_t DynamicShared() { return 0; }

inline uint32_t MultiplyFp16x2(uint32_t x, uint32_t y) {
  const auto half = [&](int shift) {
    const auto product = DecodeFp16(static_cast<uint16_t>(x >> shift)) *
                         DecodeFp16(static_cast<uint16_t>(y >> shift));
    return static_cast<uint32_t>(EncodeFp16(product)) << shift;
  };
  return half(0) | half(16);
}

inline uint32_t MultiplyBf16x2(uint32_t x, uint32_t y) {
  const auto half = [&](int shift) {
    const auto product = DecodeBf16(static_cast<uint16_t>(x >> shift)) *
                         DecodeBf16(static_cast<uint16_t>(y >> shift));
    return static_cast<uint32_t>(EncodeBf16(product)) << shift;
  };
  return half(0) | half(16);
}

inline uint16_t ConvertToFp16(float value) { return EncodeFp16(value); }
inline uint16_t ConvertToBf16(float value) { return EncodeBf16(value); }

inline void StoreShared(uint32_t address, uint4 value) {
  std::memcpy(emulation::Cta::Current().Shared(address, sizeof(value)), &value, sizeof(value));
}
inline void StoreShared(uint32_t address, float value) {
  std::memcpy(emulation::Cta::Current().Shared(address, sizeof(value)), &value, sizeof(value));
}
inline float LoadShared(uint32_t address) {
  float value;
  std::memcpy(&value, emulation::Cta::Current().Shared(address, sizeof(value)), sizeof(value));
  return value;
}

inline void CopyAsync(uint32_t to, const void* from) {
  emulation::Cta::Current().CopyLater(to, from);
}
inline void WaitForCopies() { emulation::Cta::Current().FinishCopies(); }

// Matrix i has its row r where lane 8 i + r points; lane l gets numbers 2 (l % 4)
// and on of row l / 4.
inline void LoadMatrices(uint32_t (&to)[4], uint32_t address) {
  auto& cta = emulation::Cta::Current();
  const auto& lanes = cta.Exchange({&address, 1});
  const uint32_t lane = cta.thread() % 32;
  for (uint32_t i = 0; i < 4; ++i) {
    const std::byte* row = cta.Shared(lanes[8 * i + lane / 4][0], 16);
    std::memcpy(&to[i], row + lane % 4 * 4, 4);
  }
}

// Number (row, k) of A is in lane 4 (row % 8) + k % 8 / 2, register row / 8 + 2
// (k / 8); number (k, column) of B in lane 4 column + k % 8 / 2, register k / 8.
template <class Decode>
inline void MultiplyAdd16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                          Decode decode) {
  auto& cta = emulation::Cta::Current();
  const auto& lanes = cta.Exchange(std::array{a[0], a[1], a[2], a[3], b0, b1});
  const uint32_t lane = cta.thread() % 32;
  const auto number = [&](uint32_t of_lane, uint32_t value, uint32_t k) {
    return decode(static_cast<uint16_t>(lanes[of_lane][value] >> (k % 2 * 16)));
  };
  for (uint32_t k = 0; k < 16; ++k) {
    const uint32_t pair = k % 8 / 2;
    const float rows[] = {number(lane / 4 * 4 + pair, k / 8 * 2, k),
                          number(lane / 4 * 4 + pair, k / 8 * 2 + 1, k)};
    const float columns[] = {number(lane % 4 * 8 + pair, 4 + k / 8, k),
                             number(lane % 4 * 8 + 4 + pair, 4 + k / 8, k)};
    for (uint32_t i = 0; i < 4; ++i) acc[i] = std::fma(rows[i / 2], columns[i % 2], acc[i]);
  }
}
inline void MultiplyAddFp16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MultiplyAdd16(acc, a, b0, b1, DecodeFp16);
}
inline void MultiplyAddBf16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MultiplyAdd16(acc, a, b0, b1, DecodeBf16);
}

}  // namespace tetrad::cuda
