// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings activations into the form the Hopper GEMM (gemm.h) fetches, on a device of any
// architecture: one dense matrix of 16-bit tokens. wgmma reads tokens from shared memory,
// where the copy engine puts them: nobody could expand NVFP4 on the way but warps of the
// GEMM, once for each strip of weights. Here it is done once, into scratch that the GEMM
// then reads from L2. 16-bit activations pass through here only where groups lie apart or
// differ in K; else the GEMM reads them where they are.
//
// NVFP4 becomes FP16: code * scale, nothing else, in natural K order; FP16 holds all of
// them. Bit 7 of a scale is ignored; 0x7F makes its 16 numbers NaN (0x7FFF), zeros too.
// 16-bit numbers are copied bit by bit.
//
// The next grid may start at once: a GEMM behind a programmatic edge fetches weights
// meanwhile, and waits for this grid before it fetches tokens. In turn this grid waits
// for the one before it, which may still write the codes or read the scratch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/nvfp4.h"
#include "kernels/problem.h"

namespace tetrad::sm90 {

// Where a group's rows lie, in bytes from the operands' bases. Groups ascend in `row`, the
// first has row 0; one without rows has the row of the next.
struct PrepareGroup {
  int64_t a = 0;
  int64_t a_scales = 0;
  int32_t row = 0;  // of the tokens
  int32_t k = 0;    // at most the pitch
};

// Addresses are multiples of 16 but for a group's `a_scales`. Nothing beyond an operand's
// bytes is read, and what pads blocked scales is not. Of a row of tokens the numbers from the
// group's k to the next multiple of 64 (or the pitch, if that is less) are set to zero, the
// rest is not written.
struct PrepareArguments {
  const uint8_t* a = nullptr;
  const uint8_t* a_scales = nullptr;     // null unless a_type is kNvfp4
  uint16_t* tokens = nullptr;            // [rows, pitch]
  const PrepareGroup* groups = nullptr;  // host M; of the plan, never changes
  const int32_t* m_values = nullptr;     // device-side M; then `groups` is null
  cuda::LaunchState* state = nullptr;    // begun_ns is set; its error word is left to the GEMM
  int64_t capacity_rows = 0;             // device-side M, as DeviceMProblem says
  int32_t rows = 0;                      // of the tokens; device-side M: at most these are live
  int32_t k = 0;                         // device-side M: of all groups
  int32_t pitch = 0;                     // numbers from row to row of the tokens; the largest k
  int32_t group_count = 0;
  ActivationType a_type = ActivationType::kNvfp4;
  ScaleLayout a_scale_layout = ScaleLayout::kLinear;
  MSource m_source = MSource::kHost;
  bool begins = true;  // no snapshot before: state.begun_ns is this kernel's to set
  uint8_t padding[4] = {};
};
static_assert(sizeof(PrepareGroup) == 24 && sizeof(PrepareArguments) == 80 &&
              std::is_trivially_copyable_v<PrepareArguments>);

// tetrad_sm90_prepare(PrepareArguments), image unit "prepare": any grid of kPrepareThreads.
// More CTAs than PrepareCtas() have nothing to do; with more than reside at once the next
// grid starts late.
inline constexpr char kPrepareEntry[] = "tetrad_sm90_prepare";
inline constexpr int32_t kPrepareThreads = 128;
// A warp takes so many numbers of one row at a time.
inline constexpr int32_t kPreparePiece = 1024;

constexpr int64_t PreparePieces(int64_t rows, int64_t pitch) {
  return rows * CeilDiv(pitch, kPreparePiece);
}
constexpr int64_t PrepareCtas(int64_t rows, int64_t pitch) {
  return CeilDiv(PreparePieces(rows, pitch), kPrepareThreads / 32);
}

// Device-side M: this kernel and the GEMM each read the counts, and whoever owns their memory may
// rewrite them meanwhile: the GEMM would then multiply rows that nobody prepared, which an earlier
// launch left in the scratch. So both read a copy, made by a kernel before:
// tetrad_sm90_snapshot(SnapshotArguments), image unit "prepare", one CTA of kPrepareThreads, each
// value read once.
struct SnapshotArguments {
  const int32_t* from = nullptr;
  int32_t* to = nullptr;
  cuda::LaunchState* state = nullptr;  // begun_ns is set
  int32_t count = 0;
  int32_t padding = 0;
};
static_assert(sizeof(SnapshotArguments) == 32);
inline constexpr char kSnapshotEntry[] = "tetrad_sm90_snapshot";

}  // namespace tetrad::sm90
