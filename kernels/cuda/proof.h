// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device code of the replay proof: fills scratch with legal operands and
// compares two results, so that nothing crosses the bus.
#pragma once

#include <cstdint>

#include "kernels/nvfp4.h"

namespace tetrad::cuda {

// What a filled operand holds; every value is a function of (seed, position).
enum class ProofFill : uint32_t {
  kCodes = 0,   // any byte
  kScales = 1,  // UE4M3 in [0.5, 2), never NaN
  kFp16 = 2,    // magnitude in [0.5, 2), either sign
  kBf16 = 3,    // magnitude in [0.5, 2), either sign
  kFp32 = 4,    // in [0.5, 2)
};

// Bytes 4 * index .. 4 * index + 3 of what is filled, lowest first.
TETRAD_HOST_DEVICE constexpr uint32_t ProofWord(ProofFill fill, uint32_t seed, uint64_t index) {
  // A bijection of 64 bits that spreads every bit (the finaliser of SplitMix64).
  uint64_t mixed = (static_cast<uint64_t>(seed) << 40) + index + 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  const auto bits = static_cast<uint32_t>((mixed ^ (mixed >> 31)) >> 16);
  // Of the exponents only the lowest bit is free: that of a half or that of one.
  switch (fill) {
    case ProofFill::kCodes:
      return bits;
    case ProofFill::kScales:
      return (bits & 0x0F0F0F0F) | 0x30303030;
    case ProofFill::kFp16:
      return (bits & 0x87FF87FF) | 0x38003800;
    case ProofFill::kBf16:
      return (bits & 0x80FF80FF) | 0x3F003F00;
    case ProofFill::kFp32:
      return (bits & 0x00FFFFFF) | 0x3F000000;
  }
  return 0;
}

// tetrad_proof_fill(uint8_t* out, int64_t bytes, uint32_t seed, ProofFill fill)
// Any grid of kProofThreads. `out` is a multiple of 16, `bytes` any.
inline constexpr char kProofFillEntry[] = "tetrad_proof_fill";

// tetrad_proof_compare(const uint8_t* x, const uint8_t* y, int64_t bytes, uint64_t* different)
// Any grid of kProofThreads. Adds the number of bytes that differ to `*different`;
// addresses as above.
inline constexpr char kProofCompareEntry[] = "tetrad_proof_compare";

inline constexpr int32_t kProofThreads = 256;

}  // namespace tetrad::cuda
