// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Word by word, as packed_weights.h says where everything is; the device's code
// (pack.cu) is another way to the same bytes.
#include "kernels/sm90/pack.h"

#include <cstring>

namespace tetrad::sm90 {
namespace {

struct CodeWord {
  int64_t row;
  int64_t k;       // of its first code
  int64_t offset;  // byte in the packed matrix
};
struct ScaleWord {
  int64_t row;
  int64_t scale;  // the first of four
  int64_t offset;
};

// Calls `codes` for every word of codes and `scales` for every word of scales of one
// matrix, padding included.
template <class Codes, class Scales>
void ForEachWord(int64_t n, int64_t k, const Codes& codes, const Scales& scales) {
  const int64_t steps = CeilDiv(k, kBlockK);
  for (int64_t block = 0; block < PackedBlocks(n, k); ++block) {
    const int64_t begin = block * kBlockBytes;
    const int64_t first_k = block % steps * kBlockK;
    for (int32_t slab = 0; slab < kSlabs; ++slab) {
      const int64_t first_row = block / steps * kBlockRows + slab * kSlabRows;
      for (int32_t r = 0; r < kSlabRows; ++r) {
        const int32_t g = r % 8;
        const int64_t row = first_row + FragmentRow(r);
        for (int32_t q = 0; q < 4; ++q) {
          for (int32_t half = 0; half < 2; ++half) {
            codes(CodeWord{
                row, first_k + 32 * half + 2 * q,
                begin + slab * kSlabCodeBytes + (4 * g + q) * 16 + (r / 8 * 2 + half) * 4});
          }
        }
        scales(ScaleWord{row, first_k / kScaleBlock,
                         begin + kBlockCodeBytes + slab * kSlabScaleBytes + g * 8 + r / 8 * 4});
      }
    }
  }
}

// Bytes of the row that hold a word's four pairs, from that of its first code on.
constexpr int64_t kPairBytes[] = {0, 4, 8, 12};

void PackMatrix(const PackArguments& from) {
  const int64_t n = from.weights.n, k = from.weights.k;
  const ScaleLayout layout = from.weights.scale_layout;
  const auto store = [&](int64_t offset, uint32_t word) {
    std::memcpy(from.packed + offset, &word, sizeof(word));
  };
  const auto codes = [&](const CodeWord& word) {
    FragmentPairs pairs = {};
    for (int i = 0; i < 4; ++i) {
      const int64_t at = word.k + 2 * kPairBytes[i];
      if (word.row >= n || at >= k) continue;
      const uint8_t* const row = from.codes + CodeBytes(word.row, k);
      pairs.pairs[i] = CodePair(UnpackCode(row, at), UnpackCode(row, at + 1));
    }
    store(word.offset, PackWord(pairs));
  };
  const auto scales = [&](const ScaleWord& word) {
    uint32_t s[4] = {};
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t block = word.scale + i;
      if (word.row >= n || block >= k / kScaleBlock) continue;
      s[i] = EncodeScale(from.scales[ScaleOffset(layout, word.row, block, k)]);
    }
    store(word.offset, PackScales(s[0], s[1], s[2], s[3]));
  };
  ForEachWord(n, k, codes, scales);
}

void UnpackMatrix(const UnpackArguments& to) {
  const int64_t n = to.weights.n, k = to.weights.k;
  const ScaleLayout layout = to.weights.scale_layout;
  std::memset(to.scales, 0, static_cast<size_t>(ScalePlaneBytes(layout, n, k)));
  const auto load = [&](int64_t offset) {
    uint32_t word;
    std::memcpy(&word, to.packed + offset, sizeof(word));
    return word;
  };
  const auto codes = [&](const CodeWord& word) {
    const FragmentPairs pairs = UnpackWord(load(word.offset));
    for (int i = 0; i < 4; ++i) {
      const int64_t at = word.k + 2 * kPairBytes[i];
      if (word.row >= n || at >= k) continue;
      to.codes[CodeBytes(word.row, k) + at / 2] = static_cast<uint8_t>(PairCodes(pairs.pairs[i]));
    }
  };
  const auto scales = [&](const ScaleWord& word) {
    const uint32_t packed = load(word.offset);
    const uint32_t first = FirstScales(packed) >> 7, second = SecondScales(packed) >> 7;
    const uint32_t s[] = {first & 0xFF, first >> 16, second & 0xFF, second >> 16};
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t block = word.scale + i;
      if (word.row >= n || block >= k / kScaleBlock) continue;
      to.scales[ScaleOffset(layout, word.row, block, k)] = DecodeScale(static_cast<uint8_t>(s[i]));
    }
  };
  ForEachWord(n, k, codes, scales);
}

// One matrix after the other.
template <class Arguments, class Matrix>
void ForEachMatrix(Arguments arguments, const Matrix& matrix) {
  const WeightsStack& w = arguments.weights;
  for (int32_t group = 0; group < w.groups; ++group) {
    matrix(arguments);
    arguments.codes += CodeBytes(w.n, w.k);
    arguments.scales += ScalePlaneBytes(w.scale_layout, w.n, w.k);
    arguments.packed += PackedBytes(w.n, w.k);
  }
}

}  // namespace

void PackWeights(const PackArguments& arguments) { ForEachMatrix(arguments, PackMatrix); }
void UnpackWeights(const UnpackArguments& arguments) { ForEachMatrix(arguments, UnpackMatrix); }

}  // namespace tetrad::sm90
