// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device code of the replay proof: fills scratch with legal operands and
// compares two results, so that nothing crosses the bus.
#pragma once

#include <cstdint>

namespace tetrad::cuda {

// What a filled operand holds; every value is a function of (seed, position).
enum class ProofFill : uint32_t {
  kCodes = 0,   // any byte
  kScales = 1,  // UE4M3 of moderate size, never NaN
  kFp16 = 2,    // finite, magnitude below 8
  kBf16 = 3,    // finite, magnitude below 8
  kFp32 = 4,    // in [0.5, 2)
};

// tetrad_proof_fill(uint8_t* out, int64_t bytes, uint32_t seed, ProofFill fill)
// Any grid. `out` is a multiple of 16, `bytes` any.
inline constexpr char kProofFillEntry[] = "tetrad_proof_fill";

// tetrad_proof_compare(const uint8_t* x, const uint8_t* y, int64_t bytes, uint64_t* different)
// Any grid. Adds the number of bytes that differ to `*different`; addresses as above.
inline constexpr char kProofCompareEntry[] = "tetrad_proof_compare";

inline constexpr int32_t kProofThreads = 256;

}  // namespace tetrad::cuda
