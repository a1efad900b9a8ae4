// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/proof.h"

#include <bit>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "kernels/float16.h"

namespace tetrad::cuda {
namespace {

TEST(ProofWordTest, ValuesAreLegalOfModerateSizeAndVary) {
  std::set<uint32_t> codes;
  for (uint64_t i = 0; i < 10000; ++i) {
    codes.insert(ProofWord(ProofFill::kCodes, 7, i));
    const auto word = [&](ProofFill fill) { return ProofWord(fill, 7, i); };
    const auto moderate = [](float value) {
      return std::fabs(value) >= 0.5f && std::fabs(value) < 2.0f;
    };
    for (int byte = 0; byte < 4; ++byte) {
      const auto scale = static_cast<uint8_t>(word(ProofFill::kScales) >> (8 * byte));
      EXPECT_LT(scale, 0x7F);
      EXPECT_TRUE(moderate(DecodeUe4m3(scale)));
    }
    for (int half = 0; half < 2; ++half) {
      EXPECT_TRUE(
          moderate(DecodeFp16(static_cast<uint16_t>(word(ProofFill::kFp16) >> (16 * half)))));
      EXPECT_TRUE(
          moderate(DecodeBf16(static_cast<uint16_t>(word(ProofFill::kBf16) >> (16 * half)))));
    }
    const float value = std::bit_cast<float>(word(ProofFill::kFp32));
    EXPECT_TRUE(moderate(value) && value > 0);
  }
  EXPECT_GT(codes.size(), 9990u);
}

TEST(ProofWordTest, SeedsDiffer) {
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equal += ProofWord(ProofFill::kCodes, 1, i) == ProofWord(ProofFill::kCodes, 2, i);
  }
  EXPECT_LT(equal, 3);
}

}  // namespace
}  // namespace tetrad::cuda
