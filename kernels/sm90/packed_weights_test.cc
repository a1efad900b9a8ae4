// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/packed_weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad::sm90 {
namespace {

// Zero, every single bit, and many words more.
std::vector<uint32_t> SomeWords() {
  std::vector<uint32_t> words = {0, ~0u};
  for (int bit = 0; bit < 32; ++bit) words.push_back(1u << bit);
  Random random(5);
  for (int i = 0; i < 100000; ++i) words.push_back(static_cast<uint32_t>(random.Next()));
  return words;
}

float Fp16Half(uint32_t pair, int half) {
  return DecodeFp16(static_cast<uint16_t>(pair >> (16 * half)));
}
float Bf16Half(uint32_t pair, int half) {
  return DecodeBf16(static_cast<uint16_t>(pair >> (16 * half)));
}

TEST(PackedWordTest, EveryWordIsThePackingOfItsPairs) {
  for (const uint32_t word : SomeWords()) {
    const FragmentPairs pairs = UnpackWord(word);
    for (const uint32_t pair : pairs.pairs) ASSERT_EQ(pair & ~kCodeMask, 0u);
    ASSERT_EQ(PackWord(pairs), word) << std::hex << word;
  }
}

TEST(PackedWordTest, EveryPairsComeBack) {
  Random random(6);
  for (int i = 0; i < 100000; ++i) {
    FragmentPairs pairs;
    for (uint32_t& pair : pairs.pairs) pair = static_cast<uint32_t>(random.Next()) & kCodeMask;
    const FragmentPairs back = UnpackWord(PackWord(pairs));
    ASSERT_TRUE(std::ranges::equal(back.pairs, pairs.pairs));
  }
}

// Both are linear over GF(2), so that 32 independent images mean an invertible matrix.
TEST(PackedWordTest, TheMatrixIsInvertible) {
  std::vector<uint32_t> basis;
  for (int bit = 0; bit < 32; ++bit) {
    FragmentPairs pairs = {};
    const int places[] = {9, 10, 11, 15};
    pairs.pairs[bit / 8] = 1u << (bit % 8 / 4 * 16 + places[bit % 4]);
    uint32_t image = PackWord(pairs);
    for (const uint32_t other : basis) image = std::min(image, image ^ other);
    ASSERT_NE(image, 0u) << bit;
    basis.push_back(image);
    std::ranges::sort(basis, std::greater<>());
  }
  const std::vector<uint32_t> words = SomeWords();
  for (size_t i = 1; i < words.size(); ++i) {
    const FragmentPairs x = UnpackWord(words[i - 1]), y = UnpackWord(words[i]);
    const FragmentPairs sum = UnpackWord(words[i - 1] ^ words[i]);
    for (int p = 0; p < 4; ++p) ASSERT_EQ(sum.pairs[p], x.pairs[p] ^ y.pairs[p]);
  }
}

TEST(PackedCodesTest, PairsAreFp16NumbersOfTheCodes) {
  for (uint32_t low = 0; low < 16; ++low) {
    for (uint32_t high = 0; high < 16; ++high) {
      const uint32_t pair = CodePair(low, high);
      EXPECT_EQ(pair & ~kCodeMask, 0u);
      EXPECT_EQ(Fp16Half(pair, 0), DecodeE2m1(static_cast<uint8_t>(low)) * 0x1p-14f);
      EXPECT_EQ(Fp16Half(pair, 1), DecodeE2m1(static_cast<uint8_t>(high)) * 0x1p-14f);
      EXPECT_EQ(PairCodes(pair), low | high << 4);
    }
  }
}

TEST(PackedScaleTest, EveryLegalScaleIsExactAndComesBack) {
  std::set<uint8_t> packed;
  for (int scale = 0; scale < kUe4m3Nan; ++scale) {
    const uint8_t encoded = EncodeScale(static_cast<uint8_t>(scale));
    packed.insert(encoded);
    EXPECT_EQ(DecodeScale(encoded), scale);
    EXPECT_EQ(DecodeFp16(static_cast<uint16_t>(encoded << 7)),
              DecodeUe4m3(static_cast<uint8_t>(scale)) * 0x1p7f)
        << scale;
  }
  EXPECT_EQ(packed.size(), 127u);
}

TEST(PackedScaleTest, FourScalesComeOutInPairs) {
  Random random(7);
  for (int i = 0; i < 100000; ++i) {
    uint32_t s[4];
    for (uint32_t& scale : s) {
      scale = i < 16 ? (i >> (&scale - s) & 1) * 0xFF : random.Below(256);
    }
    const uint32_t word = PackScales(s[0], s[1], s[2], s[3]);
    ASSERT_EQ(FirstScales(word), s[0] << 7 | s[1] << 23);
    ASSERT_EQ(SecondScales(word), s[2] << 7 | s[3] << 23);
  }
}

// FP16's pairs with the magnitudes three places lower, of every word: both are linear over
// GF(2), so that the single bits among SomeWords() decide for all.
TEST(Bf16WordTest, PairsAreThoseOfFp16WithMagnitudesThreePlacesLower) {
  for (const uint32_t word : SomeWords()) {
    const FragmentPairs fp16 = UnpackWord(word);
    const FragmentPairs bf16 = UnpackBf16(MagnitudesDown(word));
    for (int p = 0; p < 4; ++p) {
      const uint32_t pair = fp16.pairs[p];
      ASSERT_EQ(bf16.pairs[p], (pair & 0x80008000) | (pair & 0x0E000E00) >> 3)
          << std::hex << word << " pair " << p;
    }
  }
}

// The arithmetic of expand_weights.cuh on one half of a pair, by format: exact values,
// rounded as the device rounds them.
struct Fp16Host {
  static FragmentPairs Codes(uint32_t word) { return UnpackWord(word); }
  static uint32_t First(uint32_t scales) { return FirstScales(scales); }
  static uint32_t Second(uint32_t scales) { return SecondScales(scales); }
  static float Value(uint32_t pair, int half) { return Fp16Half(pair, half); }
  static float Rounded(float value) { return DecodeFp16(EncodeFp16(value)); }
};
struct Bf16Host {
  static FragmentPairs Codes(uint32_t word) { return UnpackBf16(MagnitudesDown(word)); }
  static uint32_t First(uint32_t scales) { return WithoutTop(FirstScalesAndTop(scales)); }
  static uint32_t Second(uint32_t scales) { return WithoutTop(SecondScalesAndTop(scales)); }
  static uint32_t WithoutTop(uint32_t scales) {
    uint32_t result = 0;
    for (int half = 0; half < 2; ++half) {
      const float difference = Value(scales, half) - Value(kBf16ScaleTop, half);
      result |= uint32_t{EncodeBf16(difference)} << (16 * half);
    }
    return result;
  }
  static float Value(uint32_t pair, int half) { return Bf16Half(pair, half); }
  static float Rounded(float value) { return DecodeBf16(EncodeBf16(value)); }
};

TEST(Bf16ScaleTest, EveryLegalScaleIsExactInEveryPlace) {
  Random random(8);
  for (int scale = 0; scale < kUe4m3Nan; ++scale) {
    const float expected = DecodeUe4m3(static_cast<uint8_t>(scale)) * 0x1p119f;
    for (int place = 0; place < 4; ++place) {
      uint32_t s[4];
      for (uint32_t& other : s) other = EncodeScale(static_cast<uint8_t>(random.Below(kUe4m3Nan)));
      s[place] = EncodeScale(static_cast<uint8_t>(scale));
      const uint32_t word = PackScales(s[0], s[1], s[2], s[3]);
      const uint32_t pair = place < 2 ? Bf16Host::First(word) : Bf16Host::Second(word);
      ASSERT_EQ(Bf16Half(pair, place % 2), expected) << scale << " in place " << place;
    }
  }
}

// What ExpandWord() makes of every code under every legal scale in every place: 2^-7 times
// the weight. All other codes and scales are random.
template <class Format>
void ExpectExactProducts() {
  Random random(9);
  const auto random_pair = [&] { return CodePair(random.Below(16), random.Below(16)); };
  for (uint32_t code = 0; code < 16; ++code) {
    for (int scale = 0; scale < kUe4m3Nan; ++scale) {
      const float weight = DecodeE2m1(static_cast<uint8_t>(code)) *
                           DecodeUe4m3(static_cast<uint8_t>(scale)) * 0x1p-7f;
      for (int place = 0; place < 16; ++place) {
        const int half = place % 2, p = place / 2 % 4, second = place / 8;
        FragmentPairs pairs = {{random_pair(), random_pair(), random_pair(), random_pair()}};
        pairs.pairs[p] =
            half == 0 ? CodePair(code, random.Below(16)) : CodePair(random.Below(16), code);
        uint32_t s[4];
        for (uint32_t& other : s) {
          other = EncodeScale(static_cast<uint8_t>(random.Below(kUe4m3Nan)));
        }
        s[second * 2 + p / 2] = EncodeScale(static_cast<uint8_t>(scale));
        const uint32_t scales = PackScales(s[0], s[1], s[2], s[3]);
        const float x = Format::Value(Format::Codes(PackWord(pairs)).pairs[p], half);
        const float y =
            Format::Value(second ? Format::Second(scales) : Format::First(scales), p / 2);
        ASSERT_EQ(x * y, weight) << code << " " << scale << " in place " << place;
        ASSERT_EQ(Format::Rounded(x * y), weight) << code << " " << scale << " in place " << place;
      }
    }
  }
}
TEST(PackedWeightTest, ProductsAreExactInFp16) { ExpectExactProducts<Fp16Host>(); }
TEST(PackedWeightTest, ProductsAreExactInBf16) { ExpectExactProducts<Bf16Host>(); }

TEST(FragmentRowTest, IsAPermutationThatGivesALaneFourNeighbours) {
  std::set<int32_t> rows;
  for (int32_t r = 0; r < kSlabRows; ++r) {
    rows.insert(FragmentRow(r));
    EXPECT_EQ(FragmentRowOf(FragmentRow(r)), r);
  }
  EXPECT_EQ(rows.size(), 16u);
  EXPECT_EQ(*rows.begin(), 0);
  EXPECT_EQ(*rows.rbegin(), 15);
  // Transposed, lane q of four has fragment rows 2q, 2q + 1 and those 8 on.
  for (int32_t q = 0; q < 4; ++q) {
    const int32_t own[] = {2 * q, 2 * q + 1, 2 * q + 8, 2 * q + 9};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(FragmentRow(own[i]), 4 * q + i);
  }
}

TEST(PackedBytesTest, CountsWholeBlocks) {
  EXPECT_EQ(PackedBytes(128, 64), 4608);
  EXPECT_EQ(PackedBytes(1, 32), 4608);
  EXPECT_EQ(PackedBytes(129, 64), 2 * 4608);
  EXPECT_EQ(PackedBytes(128, 96), 2 * 4608);
  EXPECT_EQ(PackedBytes(4096, 7168), 32 * 112 * 4608);
  // No bit more than codes and scales have.
  EXPECT_EQ(PackedBytes(4096, 7168),
            CodeBytes(4096, 7168) + ScalePlaneBytes(ScaleLayout::kLinear, 4096, 7168));
  EXPECT_EQ(PackedBytes(int64_t{1} << 20, int64_t{1} << 20), (int64_t{1} << 27) * 4608);
}

}  // namespace
}  // namespace tetrad::sm90
