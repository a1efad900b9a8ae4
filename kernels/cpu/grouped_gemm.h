// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The grouped GEMM on the CPU: one tile of one group per call.
//
// Every output element is one serial chain acc = fma(a, b, acc) over k = 0 ..
// K-1 from +0, whose products are exact in FP32, so the bits of a row depend on
// nothing but its own activations, its weights and the types: not on the
// instruction set, the tile, M, the neighbours or strides (docs/numerics.md).
//
// Threads: every function is safe to call at the same time as any other, as
// long as scratch and output tiles do not overlap. Nothing here allocates,
// blocks, keeps state, or owns what its pointers name. Nothing here fails:
// arguments are the caller's invariants, except the device-side counts, which
// are untrusted and clamped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/nvfp4.h"
#include "kernels/problem.h"

namespace tetrad::cpu {

enum class InstructionSet : uint8_t { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };
inline constexpr int kInstructionSets = 3;

// The fastest set this processor and operating system support.
InstructionSet BestInstructionSet();
bool Supported(InstructionSet set);
std::string_view Name(InstructionSet set);

// The largest tile of one call. Any smaller one is legal, at any place; columns
// that start at a multiple of the granule waste no lanes.
inline constexpr int32_t kMaxTileRows = 256;
inline constexpr int32_t kMaxTileColumns = 256;
inline constexpr int32_t kTileColumnGranule = 32;

// Working memory of one thread, preallocated by the caller.
inline constexpr size_t kScratchBytes = 640 * 1024;
inline constexpr size_t kScratchAlignment = 64;

// Computes the part of `tile` that lies inside the group (with device-side M a
// tile may lie beyond the live rows) and writes nothing else.
void RunTile(InstructionSet set, const ProblemTypes& types, const GroupProblem& group,
             const Tile& tile, std::span<std::byte> scratch);

// Expands rows [row, row + rows) of a NVFP4 matrix of `k` columns to FP32, each
// value exact; row i of the result begins at out + i * out_stride.
void DequantizeRows(InstructionSet set, const uint8_t* codes, const uint8_t* scales,
                    ScaleLayout layout, int64_t k, int64_t row, int64_t rows, float* out,
                    int64_t out_stride);

// Forms the groups of stacked operands whose M the host knows: group g begins
// at row sum of m[i], i < g, of A, C and row_scale; its blocked scales at
// row-block sum of ceil(m[i] / 128). `base.m_values` is not read.
void StackedGroups(const DeviceMProblem& base, const ProblemTypes& types,
                   std::span<const int32_t> m, std::span<GroupProblem> groups);

// The same for device-side M. Reads each count or offset once; a value outside
// the capacity is clamped and sets a bit of `*error` (kError*), which keeps the
// bits it had. kOffsets: as StackedGroups, over the live counts. kCounts: group
// g begins at row g * R, its blocked scales at row-block g * ceil(R / 128).
void ResolveDeviceM(const DeviceMProblem& problem, const ProblemTypes& types,
                    std::span<GroupProblem> groups, uint32_t* error);

}  // namespace tetrad::cpu
