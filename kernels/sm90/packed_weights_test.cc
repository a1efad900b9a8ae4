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

// What the kernel computes of codes and scales: 2^-7 times the weight, exactly, in
// both formats.
TEST(PackedWeightTest, ProductsAreExactInFp16) {
  for (uint32_t code = 0; code < 16; ++code) {
    for (int scale = 0; scale < kUe4m3Nan; ++scale) {
      const float weight = DecodeE2m1(static_cast<uint8_t>(code)) *
                           DecodeUe4m3(static_cast<uint8_t>(scale)) * 0x1p-7f;
      const uint32_t scales = static_cast<uint32_t>(EncodeScale(static_cast<uint8_t>(scale))) << 7;
      const float product = Fp16Half(CodePair(code, 0), 0) * Fp16Half(scales, 0);
      EXPECT_EQ(product, weight);
      EXPECT_EQ(DecodeFp16(EncodeFp16(product)), weight) << code << " " << scale;
    }
  }
}

TEST(PackedWeightTest, ProductsAreExactInBf16) {
  for (uint32_t code = 0; code < 16; ++code) {
    for (int scale = 0; scale < kUe4m3Nan; ++scale) {
      const float weight = DecodeE2m1(static_cast<uint8_t>(code)) *
                           DecodeUe4m3(static_cast<uint8_t>(scale)) * 0x1p-7f;
      // The magnitude three bits lower; scales, too, then twice 2^112.
      const uint32_t pair = CodePair(code, 0);
      const float value = Bf16Half((pair & 0x8000) | (pair & 0x0E00) >> 3, 0);
      const uint32_t scales = static_cast<uint32_t>(EncodeScale(static_cast<uint8_t>(scale))) << 7;
      const float once = Bf16Half(scales >> 3, 0) * 0x1p112f;
      const float twice = once * 0x1p112f;
      EXPECT_EQ(DecodeBf16(EncodeBf16(once)), once);
      EXPECT_EQ(DecodeBf16(EncodeBf16(twice)), twice);
      EXPECT_EQ(value * twice, weight);
      EXPECT_EQ(DecodeBf16(EncodeBf16(value * twice)), weight) << code << " " << scale;
    }
  }
}

// The kernel takes magnitudes for BF16 from the word itself, by these shifts.
TEST(PackedWeightTest, Bf16MagnitudesAreAShiftOfTheWord) {
  constexpr uint32_t kMagnitude = 0x01C001C0;
  for (const uint32_t word : SomeWords()) {
    const FragmentPairs pairs = UnpackWord(word);
    const uint32_t y = word ^ (word >> 3), z = word ^ (word << 2);
    const uint32_t shifted[] = {word << 3, word << 6, y >> 3, z >> 3};
    for (int p = 0; p < 4; ++p) {
      ASSERT_EQ(shifted[p] & kMagnitude, (pairs.pairs[p] & 0x0E000E00) >> 3) << p;
    }
  }
}

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
