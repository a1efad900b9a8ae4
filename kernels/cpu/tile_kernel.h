// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The walk over one output tile, shared by every instruction set.
//
//   for each pass along K:
//     A rows of the tile         -> scratch.a      FP32 [rows][row stride]
//     for each panel of Isa::kPanelColumns weight rows:
//       codes, transposed        -> scratch.codes  8 codes a lane, [depth/8][panel]
//       scales, decoded          -> scratch.scales FP32 [depth/16][panel]
//       many rows: B             -> scratch.b      FP32 [depth][panel], then a * b
//       few rows:  a * b straight from the codes
//       scratch.c[panel][row][panel columns] gains a * b: one serial chain a lane
//   scratch.c -> epilogue -> C
//
// Few rows (decoding) would pay more for storing expanded weights than for
// multiplying them. Both ways form the same products in the same order.
//
// `Isa` brings the vector code. It lives in an unnamed namespace of its own
// file, which gives every instance of these templates internal linkage: code
// compiled for one instruction set can never be linked into the path of
// another. For the same reason nothing here calls an inline function that is
// not a template over Isa and could stay out of line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/grouped_gemm.h"
#include "kernels/mutant.h"
#include "kernels/nvfp4.h"
#include "kernels/problem.h"

namespace tetrad::cpu {

// Codes along K in one pass: a panel of expanded weights fits the L1 cache; with
// few rows nothing is expanded, and long reads of each weight row pay instead.
// Multiples of 64, so that every pass starts at a whole scale word.
inline constexpr int kPassDepth = 192;
inline constexpr int kFewRowsPassDepth = 1024;
// Floats from row to row of expanded A: the depth and a line, since a power of
// two would put equal k of all rows into the same cache sets.
constexpr int RowStride(int depth) { return depth + 16; }
inline constexpr int kMaxFewRows = 4;
inline constexpr int kMaxPanelColumns = 32;
inline constexpr int kScalesPerWord = 4;
inline constexpr int kCodesPerLane = 8;

struct alignas(kScratchAlignment) TileScratch {
  float a[kMaxTileRows * RowStride(kPassDepth)];
  float b[kPassDepth * kMaxPanelColumns];
  float c[kMaxTileRows * kMaxTileColumns];
  uint32_t codes[kFewRowsPassDepth / kCodesPerLane * kMaxPanelColumns];
  float scales[kFewRowsPassDepth / kScaleBlock * kMaxPanelColumns];
};
static_assert(sizeof(TileScratch) <= kScratchBytes);
static_assert(kMaxFewRows * RowStride(kFewRowsPassDepth) <= kMaxTileRows * RowStride(kPassDepth));
static_assert(kMaxTileColumns % kMaxPanelColumns == 0);
static_assert(std::endian::native == std::endian::little);

// Entry points of one instruction set, for the dispatcher.
struct TileFunctions {
  void (*run_tile)(const ProblemTypes&, const GroupProblem&, const Tile&, TileScratch*);
  void (*dequantize_rows)(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout,
                          int64_t k, int64_t row, int64_t rows, float* out, int64_t out_stride);
  // Fills the multiply-add units for a number of rounds; returns the FLOPs done.
  int64_t (*spin_fma)(int64_t rounds);
};
// Those of a supported set.
const TileFunctions& FunctionsOf(InstructionSet set);

extern const TileFunctions kPortableFunctions;
extern const TileFunctions kAvx2Functions;
extern const TileFunctions kAvx512Functions;

// Values of all codes and all scale bytes, as tables.
struct ValueTables {
  float code[16] = {};
  float scale[128] = {};
  constexpr ValueTables() {
    for (int i = 0; i < 16; ++i) code[i] = DecodeE2m1(static_cast<uint8_t>(i));
    for (int i = 0; i < 128; ++i) scale[i] = DecodeUe4m3(static_cast<uint8_t>(i));
  }
};
inline constexpr ValueTables kValues;

// Block `block` of a word of four scale bytes.
template <class Isa>
float DecodeScale(uint32_t word, int block) {
  const uint32_t byte = (word >> (block * 8)) & 0xFF;
  if (TETRAD_MUTANT(kScaleBit7NotIgnored) && (byte & 0x80) != 0) return -kValues.scale[byte & 0x7F];
  if (TETRAD_MUTANT(kScaleNanIsFinite) && (byte & 0x7F) == kUe4m3Nan) return 480.0f;
  return kValues.scale[byte & 0x7F];
}

template <class Isa>
class TileKernel {
 public:
  static void RunTile(const ProblemTypes& types, const GroupProblem& group, const Tile& tile,
                      TileScratch* scratch) {
    Area area;
    area.row = tile.row;
    area.rows = Least(tile.rows, group.m - tile.row);
    area.column = tile.column;
    area.columns = Least(tile.columns, group.n - tile.column);
    if (area.rows <= 0 || area.columns <= 0) return;
    if (area.rows <= Isa::kFewRows) {
      Accumulate<kFewRowsPassDepth>(types, group, area, scratch);
    } else {
      Accumulate<kPassDepth>(types, group, area, scratch);
    }
    Store(types, group, area, scratch->c);
  }

  static void DequantizeRows(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout,
                             int64_t k, int64_t row, int64_t rows, float* out, int64_t out_stride) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t begin = 0; begin < k; begin += kFewRowsPassDepth) {
        const int64_t left = k - begin;
        const int depth = static_cast<int>(left < kFewRowsPassDepth ? left : kFewRowsPassDepth);
        ExpandCodeRow(codes, scales, layout, row + i, begin, depth, k,
                      out + i * out_stride + begin);
      }
    }
  }

 private:
  static constexpr int kPanel = Isa::kPanelColumns;
  static_assert(kMaxPanelColumns % kPanel == 0 && Isa::kFewRows <= kMaxFewRows);

  struct Area {
    int row = 0, rows = 0, column = 0, columns = 0;
  };

  static constexpr int Least(int a, int b) { return a < b ? a : b; }

  // scratch->c = A B^T of the area.
  template <int kDepth>
  static void Accumulate(const ProblemTypes& types, const GroupProblem& group, const Area& area,
                         TileScratch* scratch) {
    for (int k = 0; k < group.k; k += kDepth) {
      const int depth = Least(kDepth, group.k - k);
      if (TETRAD_MUTANT(kKTailDropped) && k > 0 && depth < kDepth) continue;
      const bool first = k == 0 || TETRAD_MUTANT(kAccumulatorRestartsEachPass);
      ExpandActivations(types, group, area, k, depth, RowStride(kDepth), scratch->a);
      for (int column = 0; column < area.columns; column += kPanel) {
        float* c = scratch->c + column * kMaxTileRows;
        LoadWeights(types, group, area.column + column, k, depth, scratch);
        if constexpr (kDepth == kFewRowsPassDepth) {
          MultiplyFewRows<Isa::kFewRows>(area.rows, depth, first, *scratch, c);
        } else {
          Isa::ExpandPanel(scratch->codes, scratch->scales, depth, scratch->b);
          MultiplyPanel(area.rows, depth, first, scratch->a, scratch->b, c);
        }
      }
    }
  }

  // The scale bytes of one row from a given block on, four blocks at a time.
  struct ScaleRow {
    const uint8_t* at;
    int64_t step;  // bytes from one word to the next
  };
  static ScaleRow FindScales(ScaleLayout layout, const uint8_t* scales, int64_t row, int64_t block,
                             int64_t k) {
    if (TETRAD_MUTANT(kBlockedScalesReadAsLinear)) layout = ScaleLayout::kLinear;
    if (layout == ScaleLayout::kLinear) {
      return {scales + row * (k / kScaleBlock) + block, kScalesPerWord};
    }
    const int64_t tiles_along_k = (k + 63) / 64;
    return {scales + (row / 128 * tiles_along_k + block / 4) * kScaleTileBytes + row % 32 * 16 +
                row % 128 / 32 * 4 + block % 4,
            kScaleTileBytes};
  }

  // `blocks` may be less than a word's four: a linear row ends there.
  static uint32_t LoadScaleWord(const uint8_t* at, int blocks) {
    uint32_t word = 0;
    if (blocks >= kScalesPerWord) {
      std::memcpy(&word, at, sizeof(word));
    } else {
      std::memcpy(&word, at, kScalesPerWord / 2);  // K is a multiple of 32: two blocks
    }
    if (TETRAD_MUTANT(kScaleOffByOneBlock)) word = word >> 8 | word << 24;
    return word;
  }

  static void ExpandCodeRow(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout,
                            int64_t row, int64_t begin, int depth, int64_t k, float* out) {
    const ScaleRow from = FindScales(layout, scales, row, begin / kScaleBlock, k);
    const int blocks = depth / kScaleBlock;
    uint32_t words[kFewRowsPassDepth / kScaleBlock / kScalesPerWord];
    for (int i = 0; i * kScalesPerWord < blocks; ++i) {
      words[i] = LoadScaleWord(from.at + i * from.step, blocks - i * kScalesPerWord);
    }
    Isa::ExpandCodes(codes + (row * k + begin) / 2, words, blocks, out);
  }

  static void ExpandActivations(const ProblemTypes& types, const GroupProblem& group,
                                const Area& area, int k, int depth, int row_stride, float* out) {
    for (int i = 0; i < area.rows; ++i, out += row_stride) {
      const int64_t row = area.row + i;
      if (types.a_type == ActivationType::kNvfp4) {
        const bool leak = TETRAD_MUTANT(kScalePaddingLeaks) && row == group.m - 1 &&
                          types.a_scale_layout == ScaleLayout::kBlocked &&
                          group.m % kScaleTileRows != 0;
        ExpandCodeRow(leak ? group.a - group.k / 2 : group.a, group.a_scales, types.a_scale_layout,
                      leak ? row + 1 : row, k, depth, group.k, out);
      } else {
        const uint8_t* from = group.a + (row * group.k + k) * 2;
        if (types.a_type == ActivationType::kFp16 || TETRAD_MUTANT(kBf16ReadAsFp16)) {
          Isa::ExpandFp16(from, depth, out);
        } else {
          Isa::ExpandBf16(from, depth, out);
        }
      }
      if (TETRAD_MUTANT(kOneProductDropped) && row == group.m - 1 && k == 0) out[depth - 1] = 0;
    }
  }

  // Lanes beyond the last column repeat it: computed, never stored.
  static void LoadWeights(const ProblemTypes& types, const GroupProblem& group, int column, int k,
                          int depth, TileScratch* scratch) {
    const uint8_t* rows[kPanel];
    ScaleRow scales[kPanel];
    for (int i = 0; i < kPanel; ++i) {
      const int64_t row = Least(column + i, group.n - 1);
      rows[i] = group.b + (row * group.k + k) / 2;
      scales[i] = FindScales(types.b_scale_layout, group.b_scales, row, k / kScaleBlock, group.k);
    }
    const int blocks = depth / kScaleBlock;
    for (int word = 0; word * kScalesPerWord < blocks; ++word) {
      uint32_t words[kPanel];
      for (int i = 0; i < kPanel; ++i) {
        words[i] =
            LoadScaleWord(scales[i].at + word * scales[i].step, blocks - word * kScalesPerWord);
      }
      Isa::DecodeScaleWords(words, scratch->scales + word * kScalesPerWord * kPanel);
    }
    Isa::Transpose(rows, depth, scratch->codes);
  }

  // Splits the rows into equal parts, none above what the registers hold.
  static void MultiplyPanel(int rows, int depth, bool first, const float* a, const float* b,
                            float* c) {
    if (TETRAD_MUTANT(kRowsClampedToMicroTile)) rows = Least(rows, Isa::kMicroRows);
    int parts = (rows + Isa::kMicroRows - 1) / Isa::kMicroRows;
    while (rows > 0) {
      const int part = (rows + parts - 1) / parts;
      MultiplyRows<Isa::kMicroRows>(part, depth, first, a, b, c);
      rows -= part;
      parts -= 1;
      a += part * RowStride(kPassDepth);
      c += part * kPanel;
    }
  }
  template <int kRows>
  static void MultiplyRows(int rows, int depth, bool first, const float* a, const float* b,
                           float* c) {
    if constexpr (kRows > 1) {
      if (rows < kRows) return MultiplyRows<kRows - 1>(rows, depth, first, a, b, c);
    }
    Isa::template Multiply<kRows>(depth, first, a, b, c);
  }

  template <int kRows>
  static void MultiplyFewRows(int rows, int depth, bool first, const TileScratch& scratch,
                              float* c) {
    if constexpr (kRows > 1) {
      if (rows < kRows) return MultiplyFewRows<kRows - 1>(rows, depth, first, scratch, c);
    }
    Isa::template MultiplyCodes<kRows>(depth, first, scratch.a, scratch.codes, scratch.scales, c);
  }

  // The epilogue: every element once, nothing outside the area.
  static void Store(const ProblemTypes& types, const GroupProblem& group, const Area& area,
                    const float* c) {
    const int64_t bytes = types.c_type == OutputType::kFp32 ? 4 : 2;
    const bool row_major = types.c_layout == OutputLayout::kRowMajor;
    int64_t stride = group.c_stride;
    if (TETRAD_MUTANT(kStrideIgnored)) stride = row_major ? group.n : group.m;
    const int rows = TETRAD_MUTANT(kLastRowDropped) && area.row + area.rows == group.m
                         ? area.rows - 1
                         : area.rows;
    int columns = area.columns;
    if (TETRAD_MUTANT(kLastColumnDropped) && area.column + columns == group.n) columns -= 1;
    if (TETRAD_MUTANT(kColumnAfterTheLastWritten) && columns % kPanel != 0) columns += 1;
    for (int column = 0; column < columns; column += kPanel) {
      const int count = Least(kPanel, columns - column);
      for (int i = 0; i < rows; ++i) {
        const int64_t row = area.row + i;
        const float* from = c + column * kMaxTileRows + i * kPanel;
        alignas(kScratchAlignment) float scaled[kPanel];
        Scale(group, row, from, scaled);
        alignas(kScratchAlignment) uint8_t converted[kPanel * sizeof(float)];
        MutateScaled(types.c_type, scaled);
        Isa::Convert(types.c_type, scaled, converted);
        MutateConverted(bytes, scaled, converted);
        auto* to = static_cast<uint8_t*>(group.c);
        if (row_major || TETRAD_MUTANT(kColumnMajorWrittenAsRowMajor)) {
          to += (row * stride + area.column + column) * bytes;
          std::memcpy(to, converted, static_cast<size_t>(count * bytes));
        } else {
          to += ((area.column + column) * stride + row) * bytes;
          StoreColumns(converted, count, bytes, stride * bytes, to);
        }
      }
    }
  }

  static void Scale(const GroupProblem& group, int64_t row, const float* from, float* to) {
    const float alpha = TETRAD_MUTANT(kAlphaIgnored) ? 1.0f : group.alpha;
    const bool scaled = group.row_scale != nullptr && !TETRAD_MUTANT(kRowScaleIgnored);
    const float row_scale = scaled ? group.row_scale[row] : 1.0f;
    if (TETRAD_MUTANT(kAlphaAfterRowScale)) {
      for (int i = 0; i < kPanel; ++i) to[i] = from[i] * row_scale * alpha;
    } else if (TETRAD_MUTANT(kAlphaTimesRowScaleFirst)) {
      for (int i = 0; i < kPanel; ++i) to[i] = from[i] * (alpha * row_scale);
    } else {
      // Two roundings, in this order, on every backend.
      for (int i = 0; i < kPanel; ++i) to[i] = from[i] * alpha * row_scale;
    }
  }

  // Nothing in normal builds.
  static void MutateScaled(OutputType type, float* values) {
    for (int i = 0; i < kPanel; ++i) {
      if (TETRAD_MUTANT(kConversionTruncates) && type != OutputType::kFp32) {
        uint32_t bits;
        std::memcpy(&bits, &values[i], sizeof(bits));
        bits &= type == OutputType::kFp16 ? 0xFFFFE000u : 0xFFFF0000u;
        std::memcpy(&values[i], &bits, sizeof(bits));
      }
      if (TETRAD_MUTANT(kOverflowSaturates) && type == OutputType::kFp16) {
        values[i] = values[i] > 65504 ? 65504 : values[i] < -65504 ? -65504 : values[i];
      }
    }
  }
  static void MutateConverted(int64_t bytes, const float* values, uint8_t* converted) {
    for (int i = 0; i < kPanel; ++i) {
      if (TETRAD_MUTANT(kNanNotCanonical) && values[i] != values[i]) {
        converted[(i + 1) * bytes - 1] ^= 0x80;
      }
    }
  }

  static void StoreColumns(const uint8_t* from, int count, int64_t bytes, int64_t step,
                           uint8_t* to) {
    for (int i = 0; i < count; ++i) {
      if (bytes == 2) {
        std::memcpy(to + i * step, from + i * 2, 2);
      } else {
        std::memcpy(to + i * step, from + i * 4, 4);
      }
    }
  }
};

}  // namespace tetrad::cpu
