// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/grouped_gemm.h"

#include <cassert>

#if defined(TETRAD_CPU_X86)
#include <cpuid.h>
#endif

#include "kernels/cpu/tile_kernel.h"

namespace tetrad::cpu {
const TileFunctions& FunctionsOf(InstructionSet set) {
#if defined(TETRAD_CPU_X86)
  if (set == InstructionSet::kAvx512) return kAvx512Functions;
  if (set == InstructionSet::kAvx2) return kAvx2Functions;
#endif
  assert(set == InstructionSet::kPortable);
  return kPortableFunctions;
}

#if defined(TETRAD_CPU_X86)
// Clang's __builtin_cpu_supports() knows no f16c before version 15.
static bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool Supported(InstructionSet set) {
#if defined(TETRAD_CPU_X86)
  if (set == InstructionSet::kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
  }
  if (set == InstructionSet::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  }
#endif
  return set == InstructionSet::kPortable;
}

InstructionSet BestInstructionSet() {
  if (Supported(InstructionSet::kAvx512)) return InstructionSet::kAvx512;
  if (Supported(InstructionSet::kAvx2)) return InstructionSet::kAvx2;
  return InstructionSet::kPortable;
}

std::string_view Name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return "portable";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

void RunTile(InstructionSet set, const ProblemTypes& types, const GroupProblem& group,
             const Tile& tile, std::span<std::byte> scratch) {
  assert(scratch.size() >= kScratchBytes);
  assert(reinterpret_cast<uintptr_t>(scratch.data()) % kScratchAlignment == 0);
  assert(tile.rows <= kMaxTileRows && tile.columns <= kMaxTileColumns);
  FunctionsOf(set).run_tile(types, group, tile, reinterpret_cast<TileScratch*>(scratch.data()));
}

void DequantizeRows(InstructionSet set, const uint8_t* codes, const uint8_t* scales,
                    ScaleLayout layout, int64_t k, int64_t row, int64_t rows, float* out,
                    int64_t out_stride) {
  FunctionsOf(set).dequantize_rows(codes, scales, layout, k, row, rows, out, out_stride);
}

}  // namespace tetrad::cpu
