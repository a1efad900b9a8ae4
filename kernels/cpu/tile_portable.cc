// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Plain C++: the meaning of the kernel without instructions of any processor.
//
// fma(a, b, c) is computed as float(double(c) + double(a) * double(b)). The
// product is exact in double, and rounding the sum twice gives the bits of
// rounding it once, because 53 >= 2 * 24 + 2 (docs/numerics.md, section 3).
#include <bit>

#include "kernels/cpu/tile_kernel.h"
#include "kernels/float16.h"

namespace tetrad::cpu {
namespace {

struct Portable {
  static constexpr int kPanelColumns = 16;
  static constexpr int kMicroRows = 4;
  static constexpr int kFewRows = 1;

  // Code `index` of a word of eight.
  static float DecodeCode(uint32_t eight, int index) {
    const uint32_t code = eight >> (4 * (TETRAD_MUTANT(kNibblesSwapped) ? index ^ 1 : index));
    return kValues.code[TETRAD_MUTANT(kNegativeCodesLoseSign) ? code & 7 : code & 15];
  }

  static void ExpandCodes(const uint8_t* codes, const uint32_t* scale_words, int blocks,
                          float* out) {
    for (int block = 0; block < blocks; ++block) {
      const uint32_t word = scale_words[block / kScalesPerWord];
      const float scale = DecodeScale<Portable>(word, block % kScalesPerWord);
      for (int k = block * kScaleBlock; k < (block + 1) * kScaleBlock; ++k) {
        uint32_t eight;
        std::memcpy(&eight, codes + k / kCodesPerLane * sizeof(eight), sizeof(eight));
        out[k] = DecodeCode(eight, k % kCodesPerLane) * scale;
      }
    }
  }

  static void ExpandFp16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + i * 2, sizeof(bits));
      out[i] = DecodeFp16(bits);
    }
  }

  static void ExpandBf16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + i * 2, sizeof(bits));
      out[i] = DecodeBf16(bits);
    }
  }

  static void DecodeScaleWords(const uint32_t* words, float* out) {
    for (int block = 0; block < kScalesPerWord; ++block) {
      for (int i = 0; i < kPanelColumns; ++i) {
        out[block * kPanelColumns + i] = DecodeScale<Portable>(words[i], block);
      }
    }
  }

  static void Transpose(const uint8_t* const* rows, int depth, uint32_t* out) {
    for (int i = 0; i < depth / kCodesPerLane; ++i) {
      for (int column = 0; column < kPanelColumns; ++column) {
        uint32_t* to = out + i * kPanelColumns + column;
        std::memcpy(to, rows[column] + i * sizeof(*to), sizeof(*to));
      }
    }
  }

  // The weights of one k.
  static void ExpandLine(const uint32_t* codes, const float* scales, int k, float* out) {
    const uint32_t* eight = codes + k / kCodesPerLane * kPanelColumns;
    const float* scale = scales + k / kScaleBlock * kPanelColumns;
    for (int i = 0; i < kPanelColumns; ++i) {
      out[i] = DecodeCode(eight[i], k % kCodesPerLane) * scale[i];
    }
  }

  static void ExpandPanel(const uint32_t* codes, const float* scales, int depth, float* out) {
    for (int k = 0; k < depth; ++k) ExpandLine(codes, scales, k, out + k * kPanelColumns);
  }

  static void AddProducts(double factor, const float* weights, double* sum) {
    for (int i = 0; i < kPanelColumns; ++i) {
      sum[i] = static_cast<float>(sum[i] + factor * static_cast<double>(weights[i]));
    }
  }

  // The sums are doubles that hold FP32 values.
  static void LoadSums(bool first, const float* c, double* sum) {
    for (int i = 0; i < kPanelColumns; ++i) sum[i] = first ? 0.0f : c[i];
  }
  static void StoreSums(const double* sum, float* c) {
    for (int i = 0; i < kPanelColumns; ++i) c[i] = static_cast<float>(sum[i]);
  }

  template <int kRows>
  static void MultiplyCodes(int depth, bool first, const float* a, const uint32_t* codes,
                            const float* scales, float* c) {
    static_assert(kRows == 1);
    double sum[kPanelColumns];
    LoadSums(first, c, sum);
    for (int k = 0; k < depth; ++k) {
      float weights[kPanelColumns];
      ExpandLine(codes, scales, k, weights);
      AddProducts(a[k], weights, sum);
    }
    StoreSums(sum, c);
  }

  template <int kRows>
  static void Multiply(int depth, bool first, const float* a, const float* b, float* c) {
    for (int row = 0; row < kRows; ++row, a += RowStride(kPassDepth), c += kPanelColumns) {
      double sum[kPanelColumns];
      LoadSums(first, c, sum);
      for (int k = 0; k < depth; ++k) AddProducts(a[k], b + k * kPanelColumns, sum);
      StoreSums(sum, c);
    }
  }

  static void Convert(OutputType type, const float* from, uint8_t* to) {
    for (int i = 0; i < kPanelColumns; ++i) {
      if (type == OutputType::kFp32) {
        uint32_t bits = std::bit_cast<uint32_t>(from[i]);
        if (IsNanBits(from[i])) bits = kCanonicalNanFp32;
        std::memcpy(to + i * 4, &bits, sizeof(bits));
      } else {
        const uint16_t bits = type == OutputType::kFp16 ? EncodeFp16(from[i]) : EncodeBf16(from[i]);
        std::memcpy(to + i * 2, &bits, sizeof(bits));
      }
    }
  }

  static int64_t SpinFma(int64_t rounds) {
    constexpr int kChains = 16;
    double sums[kChains];
    for (double& sum : sums) sum = 1.0;
    const volatile float one = 1.0f;  // or the chains would be folded
    const volatile float step = 0x1p-20f;
    const double factor = one;
    const double addend = step;
    for (int64_t i = 0; i < rounds; ++i) {
      for (double& sum : sums) sum = static_cast<float>(addend + sum * factor);
    }
    volatile double sink = 0;
    for (const double sum : sums) sink = sink + sum;
    return rounds * kChains * 2;
  }
};

}  // namespace

const TileFunctions kPortableFunctions = {
    &TileKernel<Portable>::RunTile, &TileKernel<Portable>::DequantizeRows, &Portable::SpinFma};

}  // namespace tetrad::cpu
