// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 (F, BW, VL). A panel is 32 weight rows, two registers wide; 12 rows
// of A against it keep 24 accumulators, two weight vectors and a broadcast in
// the 32 registers. (14 rows fit too, and gain nothing: they crowd the L1 cache.)
#include <immintrin.h>

#include "kernels/cpu/tile_kernel.h"

namespace tetrad::cpu {
namespace {

constexpr int kLanes = 16;

struct Avx512 {
  static constexpr int kPanelColumns = 2 * kLanes;
  static constexpr int kMicroRows = 12;
  static constexpr int kFewRows = 4;

  static __m512 CodeTable() {
    const __m512 table = _mm512_loadu_ps(kValues.code);
    return TETRAD_MUTANT(kNegativeCodesLoseSign) ? _mm512_abs_ps(table) : table;
  }

  static void ExpandCodes(const uint8_t* codes, const uint32_t* scale_words, int blocks,
                          float* out) {
    const __m512 table = CodeTable();
    const __m128i nibble = _mm_set1_epi8(0x0F);
    for (int block = 0; block < blocks; ++block) {
      const float scale =
          DecodeScale<Avx512>(scale_words[block / kScalesPerWord], block % kScalesPerWord);
      const __m128i packed =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + block * (kScaleBlock / 2)));
      __m128i even = _mm_and_si128(packed, nibble);
      __m128i odd = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
      if (TETRAD_MUTANT(kNibblesSwapped)) {
        const __m128i kept = even;
        even = odd;
        odd = kept;
      }
      const __m512i index = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(even, odd));
      const __m512 value = _mm512_permutexvar_ps(index, table);
      _mm512_storeu_ps(out + block * kScaleBlock, _mm512_mul_ps(value, _mm512_set1_ps(scale)));
    }
  }

  static void ExpandFp16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; i += kLanes) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * 2));
      _mm512_storeu_ps(out + i, _mm512_cvtph_ps(bits));
    }
  }

  static void ExpandBf16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; i += kLanes) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * 2));
      _mm512_storeu_si512(out + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
  }

  static __m512 DecodeScales(__m512i words, int block) {
    const __m512i byte = _mm512_and_si512(_mm512_srl_epi32(words, _mm_cvtsi32_si128(block * 8)),
                                          _mm512_set1_epi32(0x7F));
    const __m512 normal = _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(byte, 20), _mm512_set1_epi32(120 << 23)));
    // Exponent 0: mantissa * 2^-9. Not by an FP32 subnormal, which would trap to microcode.
    const __mmask16 subnormal = _mm512_cmplt_epi32_mask(byte, _mm512_set1_epi32(8));
    __m512 value =
        _mm512_mask_mul_ps(normal, subnormal, _mm512_cvtepi32_ps(byte), _mm512_set1_ps(0x1p-9f));
    if (TETRAD_MUTANT(kScaleBit7NotIgnored)) {
      const __m512i sign = _mm512_and_si512(
          _mm512_sll_epi32(words, _mm_cvtsi32_si128(24 - block * 8)), _mm512_set1_epi32(INT32_MIN));
      value = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
    }
    if (TETRAD_MUTANT(kScaleNanIsFinite)) return value;
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(byte, _mm512_set1_epi32(kUe4m3Nan));
    return _mm512_mask_mov_ps(value, nan, _mm512_set1_ps(__builtin_nanf("")));
  }

  static void DecodeScaleWords(const uint32_t* words, float* out) {
    for (int half = 0; half < 2; ++half) {
      const __m512i lanes = _mm512_loadu_si512(words + half * kLanes);
      for (int block = 0; block < kScalesPerWord; ++block) {
        _mm512_storeu_ps(out + block * kPanelColumns + half * kLanes, DecodeScales(lanes, block));
      }
    }
  }

  // 16 bytes (32 codes) of each of 16 rows as four vectors of 8 codes a lane.
  static void LoadTransposed(const uint8_t* const* rows, int offset, __m512i out[4]) {
    __m512i quad[4];
    for (int i = 0; i < 4; ++i) {
      const auto load = [&](int row) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
      };
      const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
      const __m256i high =
          _mm256_inserti128_si256(_mm256_castsi128_si256(load(i + 8)), load(i + 12), 1);
      quad[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(quad[0], quad[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(quad[0], quad[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(quad[2], quad[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(quad[2], quad[3]);
    out[0] = _mm512_unpacklo_epi64(low01, low23);
    out[1] = _mm512_unpackhi_epi64(low01, low23);
    out[2] = _mm512_unpacklo_epi64(high01, high23);
    out[3] = _mm512_unpackhi_epi64(high01, high23);
  }

  static void Transpose(const uint8_t* const* rows, int depth, uint32_t* out) {
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < depth; k += 4 * kCodesPerLane) {
        __m512i words[4];
        LoadTransposed(rows + half * kLanes, k / 2, words);
        for (int i = 0; i < 4; ++i) {
          _mm512_storeu_si512(out + (k / kCodesPerLane + i) * kPanelColumns + half * kLanes,
                              words[i]);
        }
      }
    }
  }

  // Code `index` of each lane's eight, times its scale.
  static __m512 DecodeCodes(__m512i codes, int index, __m512 table, __m512 scale) {
    const int shift = 4 * (TETRAD_MUTANT(kNibblesSwapped) ? index ^ 1 : index);
    // The permutation reads the low four bits of each lane only.
    const __m512i at = _mm512_srl_epi32(codes, _mm_cvtsi32_si128(shift));
    return _mm512_mul_ps(_mm512_permutexvar_ps(at, table), scale);
  }

  static void ExpandPanel(const uint32_t* codes, const float* scales, int depth, float* out) {
    const __m512 table = CodeTable();
    for (int k = 0; k < depth; k += kCodesPerLane) {
      for (int half = 0; half < 2; ++half) {
        const int lane = half * kLanes;
        const __m512 scale = _mm512_loadu_ps(scales + k / kScaleBlock * kPanelColumns + lane);
        const __m512i eight = _mm512_loadu_si512(codes + k / kCodesPerLane * kPanelColumns + lane);
#pragma GCC unroll 8
        for (int i = 0; i < kCodesPerLane; ++i) {
          _mm512_storeu_ps(out + (k + i) * kPanelColumns + lane,
                           DecodeCodes(eight, i, table, scale));
        }
      }
    }
  }

  template <int kRows>
  static void MultiplyCodes(int depth, bool first, const float* a, const uint32_t* codes,
                            const float* scales, float* c) {
    const __m512 table = CodeTable();
    __m512 sum[kRows][2];
    LoadSums<kRows>(first, c, sum);
    for (int k = 0; k < depth; k += kCodesPerLane) {
      const float* scale = scales + k / kScaleBlock * kPanelColumns;
      const uint32_t* eight = codes + k / kCodesPerLane * kPanelColumns;
      const __m512 scale0 = _mm512_loadu_ps(scale);
      const __m512 scale1 = _mm512_loadu_ps(scale + kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerLane; ++i) {
        const __m512 b0 = DecodeCodes(_mm512_loadu_si512(eight), i, table, scale0);
        const __m512 b1 = DecodeCodes(_mm512_loadu_si512(eight + kLanes), i, table, scale1);
        AddProducts<kRows, RowStride(kFewRowsPassDepth)>(a + k + i, b0, b1, sum);
      }
    }
    StoreSums<kRows>(sum, c);
  }

  template <int kRows>
  static void Multiply(int depth, bool first, const float* a, const float* b, float* c) {
    __m512 sum[kRows][2];
    LoadSums<kRows>(first, c, sum);
    for (int k = 0; k < depth; ++k) {
      const __m512 b0 = _mm512_loadu_ps(b + k * kPanelColumns);
      const __m512 b1 = _mm512_loadu_ps(b + k * kPanelColumns + kLanes);
      AddProducts<kRows, RowStride(kPassDepth)>(a + k, b0, b1, sum);
    }
    StoreSums<kRows>(sum, c);
  }

  template <int kRows>
  static void LoadSums(bool first, const float* c, __m512 (&sum)[kRows][2]) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      sum[row][0] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + row * kPanelColumns);
      sum[row][1] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + row * kPanelColumns + kLanes);
    }
  }

  template <int kRows, int kStride>
  static void AddProducts(const float* a, __m512 b0, __m512 b1, __m512 (&sum)[kRows][2]) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const __m512 factor = _mm512_set1_ps(a[row * kStride]);
      sum[row][0] = _mm512_fmadd_ps(factor, b0, sum[row][0]);
      sum[row][1] = _mm512_fmadd_ps(factor, b1, sum[row][1]);
    }
  }

  template <int kRows>
  static void StoreSums(const __m512 (&sum)[kRows][2], float* c) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      _mm512_storeu_ps(c + row * kPanelColumns, sum[row][0]);
      _mm512_storeu_ps(c + row * kPanelColumns + kLanes, sum[row][1]);
    }
  }

  static void Convert(OutputType type, const float* from, uint8_t* to) {
    for (int half = 0; half < 2; ++half) {
      const __m512 value = _mm512_loadu_ps(from + half * kLanes);
      const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
      const __m512i bits = _mm512_castps_si512(value);
      if (type == OutputType::kFp32) {
        const __m512i canonical = _mm512_set1_epi32(static_cast<int>(kCanonicalNanFp32));
        _mm512_storeu_si512(to + half * kLanes * 4, _mm512_mask_mov_epi32(bits, nan, canonical));
        continue;
      }
      __m256i narrow;
      if (type == OutputType::kFp16) {
        narrow = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        narrow = _mm256_mask_mov_epi16(narrow, nan, _mm256_set1_epi16(kCanonicalNanFp16));
      } else {
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded =
            _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
        narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
        narrow = _mm256_mask_mov_epi16(narrow, nan, _mm256_set1_epi16(kCanonicalNanBf16));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + half * kLanes * 2), narrow);
    }
  }

  static int64_t SpinFma(int64_t rounds) {
    constexpr int kChains = 10;  // two units, latency 4 or 5
    __m512 sums[kChains];
    for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 step = _mm512_set1_ps(0x1p-20f);
    for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
      for (__m512& sum : sums) {
        sum = _mm512_fmadd_ps(sum, one, step);
        asm volatile("" : "+v"(sum));  // or the chain would be folded
      }
    }
    return rounds * kChains * kLanes * 2;
  }
};

}  // namespace

const TileFunctions kAvx512Functions = {&TileKernel<Avx512>::RunTile,
                                        &TileKernel<Avx512>::DequantizeRows, &Avx512::SpinFma};

}  // namespace tetrad::cpu
