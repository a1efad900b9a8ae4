// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm90/pack.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/random.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad::sm90 {
namespace {

constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};

std::string Describe(const WeightsStack& w) {
  return absl::StrCat(w.groups, " x ", w.n, " x ", w.k, ", layout ",
                      static_cast<int>(w.scale_layout));
}

TEST(PackTest, UnpackingGivesWhatWasPacked) {
  for (const ScaleLayout layout : kLayouts) {
    for (const int32_t k : {32, 96, 160, 4096}) {
      for (const int32_t n : {1, 7, 127, 129, 301}) {
        const WeightsStack stack{
            .groups = k == 4096 ? 1 : 3, .n = n, .k = k, .scale_layout = layout};
        const SampleWeights from = DrawWeights(stack, 3);
        const std::vector<uint8_t> packed = Packed(from);
        const SampleWeights back = Unpacked(stack, packed);
        EXPECT_EQ(back.codes, from.codes) << Describe(stack);
        EXPECT_EQ(back.scales, WithoutJunk(from).scales) << Describe(stack);
      }
    }
  }
}

TEST(PackTest, LayoutsOfScalesAndWhatPadsThemDoNotShow) {
  WeightsStack stack{.groups = 2, .n = 77, .k = 96, .scale_layout = ScaleLayout::kBlocked};
  const SampleWeights blocked = DrawWeights(stack, 4);
  EXPECT_NE(blocked.scales, WithoutJunk(blocked).scales);
  const std::vector<uint8_t> packed = Packed(blocked);
  EXPECT_EQ(Packed(WithoutJunk(blocked)), packed);
  stack.scale_layout = ScaleLayout::kLinear;
  SampleWeights linear = Unpacked(stack, packed);
  EXPECT_EQ(Packed(linear), packed);
  EXPECT_EQ(linear.scales[96 / 16 * 76 + 5], blocked.scales[BlockedScaleOffset(76, 5, 96)]);
}

TEST(PackTest, EveryByteOfThePackedFormCountsAndPaddingIsZero) {
  for (const ScaleLayout layout : kLayouts) {
    const WeightsStack stack{.groups = 1, .n = 128, .k = 64, .scale_layout = layout};
    Random random(8);
    std::vector<uint8_t> packed(kBlockBytes);
    for (int32_t i = 0; i < kBlockCodeBytes; ++i) packed[i] = static_cast<uint8_t>(random.Next());
    // Not every byte is a scale: these are of another packing.
    const std::vector<uint8_t> other = Packed(DrawWeights(stack, 9));
    std::copy(other.begin() + kBlockCodeBytes, other.end(), packed.begin() + kBlockCodeBytes);
    EXPECT_EQ(Packed(Unpacked(stack, packed)), packed);
  }
  // Rows 3 and on, k 32 and on.
  SampleWeights ones = DrawWeights({.n = 3, .k = 32}, 1);
  std::fill(ones.codes.begin(), ones.codes.end(), uint8_t{0xFF});
  std::fill(ones.scales.begin(), ones.scales.end(), uint8_t{0x7E});
  const std::vector<uint8_t> packed = Packed(ones);
  for (int32_t lane = 0; lane < kBlockCodeBytes / 16; ++lane) {
    for (int32_t word = 0; word < 4; ++word) {
      const int32_t row = lane / 32 * kSlabRows + FragmentRow(lane % 32 / 4 + word / 2 * 8);
      uint32_t bits;
      std::memcpy(&bits, &packed[lane * 16 + word * 4], sizeof(bits));
      EXPECT_EQ(bits != 0, row < 3 && word % 2 == 0) << lane << " " << word;
    }
  }
  for (int32_t at = 0; at < kSlabs * kSlabScaleBytes; at += 4) {
    const int32_t row =
        at / kSlabScaleBytes * kSlabRows + FragmentRow(at % kSlabScaleBytes / 8 + at % 8 / 4 * 8);
    uint32_t bits;
    std::memcpy(&bits, &packed[kBlockCodeBytes + at], sizeof(bits));
    EXPECT_EQ(bits, row < 3 ? PackScales(246, 246, 0, 0) : 0) << at;
  }
}

// One row's codes and scales, by hand from the picture in packed_weights.h.
TEST(PackTest, ABlockIsLaidOutAsDescribed) {
  WeightsStack stack{.n = 128, .k = 128};
  SampleWeights weights = DrawWeights(stack, 1);
  std::fill(weights.codes.begin(), weights.codes.end(), uint8_t{0});
  std::fill(weights.scales.begin(), weights.scales.end(), uint8_t{0});
  // Row 39 = slab 2, row 7 of it = fragment row 11, so g = 3 and the upper words.
  // k 64 + 16 .. 64 + 31 (block 1, step 1) are codes 0 .. 15.
  for (int i = 0; i < 8; ++i) {
    weights.codes[39 * 64 + 32 + 8 + i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
  }
  // Scales of the same row and block: 2^-9, 1, 2^-6, 448.
  const uint8_t scales[] = {0x01, 0x38, 0x08, 0x7E};
  std::copy(std::begin(scales), std::end(scales), weights.scales.begin() + 39 * 8 + 4);
  const std::vector<uint8_t> packed = Packed(weights);

  std::vector<uint8_t> expected(2 * kBlockBytes);
  for (uint32_t q = 0; q < 4; ++q) {
    // k 2q, 2q + 1 and 2q + 8, 2q + 9 of the step: pairs 2 and 3 of the first word.
    const uint32_t low = CodePair(2 * q, 2 * q + 1), high = CodePair(2 * q + 8, 2 * q + 9);
    const uint32_t word = PackWord({{0, 0, low, high}});
    std::memcpy(&expected[4608 + 2 * 512 + (4 * 3 + q) * 16 + 2 * 4], &word, 4);
  }
  // 2^-9 * 2^7 = 2^-2: exponent 13. 1 * 2^7: 22. 2^-6 * 2^7: 16. 448 * 2^7 = 1.75 * 2^15: 30.
  const uint32_t word = PackScales(13 << 3, 22 << 3, 16 << 3, 30 << 3 | 6);
  std::memcpy(&expected[4608 + 4096 + 2 * 64 + 3 * 8 + 4], &word, 4);
  EXPECT_EQ(packed, expected);
  // For q = 0 to the last bit: codes 0, 1 and 8, 9 are 2^-14 times 0, 0.5 and -0, -0.5.
  uint32_t first;
  std::memcpy(&first, &packed[4608 + 2 * 512 + 12 * 16 + 8], 4);
  const FragmentPairs pairs = UnpackWord(first);
  EXPECT_EQ(pairs.pairs[0], 0u);
  EXPECT_EQ(pairs.pairs[1], 0u);
  EXPECT_EQ(pairs.pairs[2], 0x02000000u);
  EXPECT_EQ(pairs.pairs[3], 0x82008000u);
}

TEST(PackTest, PiecesCoverAllBlocks) {
  EXPECT_EQ(PackPieces({.groups = 3, .n = 129, .k = 288}), 3 * 2 * 2);
  EXPECT_EQ(PackPieces({.groups = 1, .n = 1, .k = 32}), 1);
}

}  // namespace
}  // namespace tetrad::sm90
