// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AVX2 with FMA and F16C. A panel is 16 weight rows, two registers wide; 6 rows
// of A against it keep 12 accumulators, two weight vectors and one broadcast in
// the 16 registers. Eight-lane tables hold magnitudes, the sign is moved.
#include <immintrin.h>

#include "kernels/cpu/tile_kernel.h"

namespace tetrad::cpu {
namespace {

constexpr int kLanes = 8;

struct Avx2 {
  static constexpr int kPanelColumns = 2 * kLanes;
  static constexpr int kMicroRows = 6;
  static constexpr int kFewRows = 4;

  // Values of the codes in bits [shift, shift + 4) of each lane.
  static __m256 DecodeCodes(__m256i words, int shift, __m256 magnitudes) {
    const __m256i index = _mm256_srl_epi32(words, _mm_cvtsi32_si128(shift));
    const __m256i sign = _mm256_and_si256(_mm256_sll_epi32(words, _mm_cvtsi32_si128(28 - shift)),
                                          _mm256_set1_epi32(INT32_MIN));
    const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, index);
    if (TETRAD_MUTANT(kNegativeCodesLoseSign)) return magnitude;
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
  }

  static void ExpandCodes(const uint8_t* codes, const uint32_t* scale_words, int blocks,
                          float* out) {
    const __m256 magnitudes = _mm256_loadu_ps(kValues.code);
    const int flip = TETRAD_MUTANT(kNibblesSwapped) ? 4 : 0;
    const __m256i shifts =
        _mm256_xor_si256(_mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0), _mm256_set1_epi32(flip));
    for (int block = 0; block < blocks; ++block) {
      const __m256 scale = _mm256_set1_ps(
          DecodeScale<Avx2>(scale_words[block / kScalesPerWord], block % kScalesPerWord));
      for (int half = 0; half < 2; ++half) {
        int word;
        std::memcpy(&word, codes + block * (kScaleBlock / 2) + half * 4, sizeof(word));
        const __m256i lanes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
        const __m256 value = DecodeCodes(lanes, 0, magnitudes);
        _mm256_storeu_ps(out + block * kScaleBlock + half * kLanes, _mm256_mul_ps(value, scale));
      }
    }
  }

  static void ExpandFp16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; i += kLanes) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
    }
  }

  static void ExpandBf16(const uint8_t* from, int count, float* out) {
    for (int i = 0; i < count; i += kLanes) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
      const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
      _mm256_storeu_ps(out + i, _mm256_castsi256_ps(wide));
    }
  }

  static __m256 DecodeScales(__m256i words, int block) {
    const __m256i byte = _mm256_and_si256(_mm256_srl_epi32(words, _mm_cvtsi32_si128(block * 8)),
                                          _mm256_set1_epi32(0x7F));
    const __m256 normal = _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(byte, 20), _mm256_set1_epi32(120 << 23)));
    // Exponent 0: mantissa * 2^-9. Not by an FP32 subnormal, which would trap to microcode.
    const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(byte), _mm256_set1_ps(0x1p-9f));
    const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), byte);
    __m256 value = _mm256_blendv_ps(normal, subnormal, _mm256_castsi256_ps(is_subnormal));
    if (TETRAD_MUTANT(kScaleBit7NotIgnored)) {
      const __m256i sign = _mm256_and_si256(
          _mm256_sll_epi32(words, _mm_cvtsi32_si128(24 - block * 8)), _mm256_set1_epi32(INT32_MIN));
      value = _mm256_or_ps(value, _mm256_castsi256_ps(sign));
    }
    if (TETRAD_MUTANT(kScaleNanIsFinite)) return value;
    const __m256i is_nan = _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(kUe4m3Nan));
    return _mm256_or_ps(value, _mm256_castsi256_ps(is_nan));  // all ones is a quiet NaN
  }

  static void DecodeScaleWords(const uint32_t* words, float* out) {
    for (int half = 0; half < 2; ++half) {
      const __m256i lanes =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + half * kLanes));
      for (int block = 0; block < kScalesPerWord; ++block) {
        _mm256_storeu_ps(out + block * kPanelColumns + half * kLanes, DecodeScales(lanes, block));
      }
    }
  }

  // 16 bytes (32 codes) of each of 8 rows as four vectors of 8 codes a lane.
  static void LoadTransposed(const uint8_t* const* rows, int offset, __m256i out[4]) {
    __m256i pair[4];
    for (int i = 0; i < 4; ++i) {
      const auto load = [&](int row) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
      };
      pair[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
    }
    const __m256i low01 = _mm256_unpacklo_epi32(pair[0], pair[1]);
    const __m256i high01 = _mm256_unpackhi_epi32(pair[0], pair[1]);
    const __m256i low23 = _mm256_unpacklo_epi32(pair[2], pair[3]);
    const __m256i high23 = _mm256_unpackhi_epi32(pair[2], pair[3]);
    out[0] = _mm256_unpacklo_epi64(low01, low23);
    out[1] = _mm256_unpackhi_epi64(low01, low23);
    out[2] = _mm256_unpacklo_epi64(high01, high23);
    out[3] = _mm256_unpackhi_epi64(high01, high23);
  }

  static void Transpose(const uint8_t* const* rows, int depth, uint32_t* out) {
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < depth; k += 4 * kCodesPerLane) {
        __m256i words[4];
        LoadTransposed(rows + half * kLanes, k / 2, words);
        for (int i = 0; i < 4; ++i) {
          uint32_t* to = out + (k / kCodesPerLane + i) * kPanelColumns + half * kLanes;
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words[i]);
        }
      }
    }
  }

  static __m256i LoadCodes(const uint32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  // Code `index` of each lane's eight, times its scale.
  static __m256 ScaledCodes(__m256i codes, int index, __m256 magnitudes, __m256 scale) {
    const int shift = 4 * (TETRAD_MUTANT(kNibblesSwapped) ? index ^ 1 : index);
    return _mm256_mul_ps(DecodeCodes(codes, shift, magnitudes), scale);
  }

  static void ExpandPanel(const uint32_t* codes, const float* scales, int depth, float* out) {
    const __m256 magnitudes = _mm256_loadu_ps(kValues.code);
    for (int k = 0; k < depth; k += kCodesPerLane) {
      for (int half = 0; half < 2; ++half) {
        const int lane = half * kLanes;
        const __m256 scale = _mm256_loadu_ps(scales + k / kScaleBlock * kPanelColumns + lane);
        const __m256i eight = LoadCodes(codes + k / kCodesPerLane * kPanelColumns + lane);
#pragma GCC unroll 8
        for (int i = 0; i < kCodesPerLane; ++i) {
          _mm256_storeu_ps(out + (k + i) * kPanelColumns + lane,
                           ScaledCodes(eight, i, magnitudes, scale));
        }
      }
    }
  }

  template <int kRows>
  static void MultiplyCodes(int depth, bool first, const float* a, const uint32_t* codes,
                            const float* scales, float* c) {
    const __m256 magnitudes = _mm256_loadu_ps(kValues.code);
    __m256 sum[kRows][2];
    LoadSums<kRows>(first, c, sum);
    for (int k = 0; k < depth; k += kCodesPerLane) {
      const float* scale = scales + k / kScaleBlock * kPanelColumns;
      const uint32_t* eight = codes + k / kCodesPerLane * kPanelColumns;
      const __m256 scale0 = _mm256_loadu_ps(scale);
      const __m256 scale1 = _mm256_loadu_ps(scale + kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerLane; ++i) {
        const __m256 b0 = ScaledCodes(LoadCodes(eight), i, magnitudes, scale0);
        const __m256 b1 = ScaledCodes(LoadCodes(eight + kLanes), i, magnitudes, scale1);
        AddProducts<kRows, RowStride(kFewRowsPassDepth)>(a + k + i, b0, b1, sum);
      }
    }
    StoreSums<kRows>(sum, c);
  }

  template <int kRows>
  static void Multiply(int depth, bool first, const float* a, const float* b, float* c) {
    __m256 sum[kRows][2];
    LoadSums<kRows>(first, c, sum);
    for (int k = 0; k < depth; ++k) {
      const __m256 b0 = _mm256_loadu_ps(b + k * kPanelColumns);
      const __m256 b1 = _mm256_loadu_ps(b + k * kPanelColumns + kLanes);
      AddProducts<kRows, RowStride(kPassDepth)>(a + k, b0, b1, sum);
    }
    StoreSums<kRows>(sum, c);
  }

  template <int kRows>
  static void LoadSums(bool first, const float* c, __m256 (&sum)[kRows][2]) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      sum[row][0] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + row * kPanelColumns);
      sum[row][1] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + row * kPanelColumns + kLanes);
    }
  }

  template <int kRows, int kStride>
  static void AddProducts(const float* a, __m256 b0, __m256 b1, __m256 (&sum)[kRows][2]) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m256 factor = _mm256_set1_ps(a[row * kStride]);
      sum[row][0] = _mm256_fmadd_ps(factor, b0, sum[row][0]);
      sum[row][1] = _mm256_fmadd_ps(factor, b1, sum[row][1]);
    }
  }

  template <int kRows>
  static void StoreSums(const __m256 (&sum)[kRows][2], float* c) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      _mm256_storeu_ps(c + row * kPanelColumns, sum[row][0]);
      _mm256_storeu_ps(c + row * kPanelColumns + kLanes, sum[row][1]);
    }
  }

  static void Convert(OutputType type, const float* from, uint8_t* to) {
    for (int half = 0; half < 2; ++half) {
      const __m256 value = _mm256_loadu_ps(from + half * kLanes);
      const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
      const __m256i bits = _mm256_castps_si256(value);
      if (type == OutputType::kFp32) {
        const __m256i canonical = _mm256_set1_epi32(static_cast<int>(kCanonicalNanFp32));
        const __m256i kept = _mm256_blendv_epi8(bits, canonical, _mm256_castps_si256(nan));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + half * kLanes * 4), kept);
        continue;
      }
      __m128i narrow;
      if (type == OutputType::kFp16) {
        narrow = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      } else {
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded =
            _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
        narrow = Narrow(_mm256_srli_epi32(rounded, 16));
      }
      static_assert(kCanonicalNanFp16 == kCanonicalNanBf16);
      narrow =
          _mm_blendv_epi8(narrow, _mm_set1_epi16(kCanonicalNanFp16),
                          _mm_packs_epi32(_mm256_castsi256_si128(_mm256_castps_si256(nan)),
                                          _mm256_extracti128_si256(_mm256_castps_si256(nan), 1)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + half * kLanes * 2), narrow);
    }
  }

  // The low 16 bits of each lane, whose high bits are zero.
  static __m128i Narrow(__m256i lanes) {
    return _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  }

  static int64_t SpinFma(int64_t rounds) {
    constexpr int kChains = 10;  // two units, latency 4 or 5
    __m256 sums[kChains];
    for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 step = _mm256_set1_ps(0x1p-20f);
    for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
      for (__m256& sum : sums) {
        sum = _mm256_fmadd_ps(sum, one, step);
        asm volatile("" : "+x"(sum));  // or the chain would be folded
      }
    }
    return rounds * kChains * kLanes * 2;
  }
};

}  // namespace

const TileFunctions kAvx2Functions = {&TileKernel<Avx2>::RunTile, &TileKernel<Avx2>::DequantizeRows,
                                      &Avx2::SpinFma};

}  // namespace tetrad::cpu
