// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract between schedules (engine) and kernels: what one grouped GEMM
// computes, as plain data. Sizes and offsets are asserted because the same
// structs are read by device code.
//
//   C_g[m,n] = convert(fl32(fl32(acc * alpha_g) * row_scale[m]))
//   acc      = sum over k of A_g[m,k] * B_g[n,k], accumulated in FP32
//
// convert rounds to nearest even; overflow gives infinity; every NaN becomes
// the one canonical NaN of the output type (kCanonicalNan*).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/nvfp4.h"

namespace tetrad {

enum class ActivationType : uint8_t { kNvfp4 = 0, kFp16 = 1, kBf16 = 2 };
enum class OutputType : uint8_t { kFp16 = 0, kBf16 = 1, kFp32 = 2 };
// kRowMajor: element (row, n) at row * c_stride + n. kColumnMajor: at n * c_stride + row.
enum class OutputLayout : uint8_t { kRowMajor = 0, kColumnMajor = 1 };
// kSeparate: one pointer per group and operand. kStacked: groups follow each
// other in one A, one C and one plane of scales.
enum class GroupForm : uint8_t { kSeparate = 0, kStacked = 1 };
// Where the M of each group comes from. kHost: the signature. kOffsets and
// kCounts: int32 device memory read at every launch (stacked form only).
// kOffsets: offsets[groups + 1] over stacked rows. kCounts: counts[groups],
// with `capacity_rows` rows reserved per group.
enum class MSource : uint8_t { kHost = 0, kOffsets = 1, kCounts = 2 };
enum class Epilogue : uint8_t { kNone = 0 };

// The NaN that tensor-core conversions produce, so that it costs them nothing.
inline constexpr uint16_t kCanonicalNanFp16 = 0x7FFF;
inline constexpr uint16_t kCanonicalNanBf16 = 0x7FFF;
inline constexpr uint32_t kCanonicalNanFp32 = 0x7FFFFFFF;

// Operand base addresses are multiples of this.
inline constexpr int64_t kOperandAlignment = 16;
inline constexpr int64_t kKMultiple = 32;

constexpr int64_t ActivationBytes(ActivationType type, int64_t rows, int64_t k) {
  return type == ActivationType::kNvfp4 ? CodeBytes(rows, k) : rows * k * 2;
}
constexpr int64_t OutputElementBytes(OutputType type) { return type == OutputType::kFp32 ? 4 : 2; }

// M, N and K of one group.
struct GroupShape {
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  bool operator==(const GroupShape&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const GroupShape& s) {
    return H::combine(std::move(h), s.m, s.n, s.k);
  }
};

// What every group of a launch shares.
struct ProblemTypes {
  ActivationType a_type = ActivationType::kNvfp4;
  OutputType c_type = OutputType::kFp16;
  ScaleLayout a_scale_layout = ScaleLayout::kLinear;  // kLinear unless a_type is kNvfp4
  ScaleLayout b_scale_layout = ScaleLayout::kLinear;
  OutputLayout c_layout = OutputLayout::kRowMajor;
  Epilogue epilogue = Epilogue::kNone;
  bool operator==(const ProblemTypes&) const = default;
};
static_assert(sizeof(ProblemTypes) == 6 && std::is_trivially_copyable_v<ProblemTypes>);

// One group with its addresses. `a_scales` is null unless A is NVFP4;
// `row_scale` (one FP32 per row) may be null, meaning 1. With device-side M,
// `m` is the live count and the addresses follow from it.
struct GroupProblem {
  const uint8_t* a = nullptr;
  const uint8_t* a_scales = nullptr;
  const uint8_t* b = nullptr;
  const uint8_t* b_scales = nullptr;
  void* c = nullptr;
  const float* row_scale = nullptr;
  int64_t c_stride = 0;  // elements
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  float alpha = 1.0f;
};
static_assert(sizeof(GroupProblem) == 72 && offsetof(GroupProblem, m) == 56);

// A rectangle of one group's output, computed whole (all of K) by one CTA.
struct Tile {
  int32_t group = 0;
  int32_t row = 0, rows = 0;
  int32_t column = 0, columns = 0;
  bool operator==(const Tile&) const = default;
};
static_assert(sizeof(Tile) == 20);

// Bits of the error word a launch with device-side M may set.
inline constexpr uint32_t kErrorCountOutOfRange = 1u
                                                  << 0;  // a count was negative or above capacity
inline constexpr uint32_t kErrorOffsetsNotMonotone = 1u << 1;  // offsets did not start at 0 or fell

// Stacked operands with device-side M, before the live counts are known.
struct DeviceMProblem {
  MSource m_source = MSource::kCounts;
  int32_t groups = 0;
  int32_t n = 0;
  int32_t k = 0;
  int64_t capacity_rows = 0;          // kOffsets: rows in total; kCounts: rows per group
  const int32_t* m_values = nullptr;  // offsets[groups + 1] or counts[groups]
  const uint8_t* a = nullptr;
  const uint8_t* a_scales = nullptr;
  const uint8_t* b = nullptr;         // [groups, n, k/2]
  const uint8_t* b_scales = nullptr;  // `groups` planes, each ScalePlaneBytes(layout, n, k)
  void* c = nullptr;
  const float* row_scale = nullptr;
  const float* alpha = nullptr;  // [groups]
  int64_t c_stride = 0;
};

}  // namespace tetrad
