// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rates.h"

#include <gtest/gtest.h>

namespace tetrad::cpu {
namespace {

// Wide bounds: this tells a wrong unit or a folded loop, not a slow machine.
TEST(RatesTest, ReadingsArePlausible) {
  for (int i = 0; i < kInstructionSets; ++i) {
    const auto set = static_cast<InstructionSet>(i);
    if (!Supported(set)) continue;
    const double flops = MeasureFmaFlops(set, 1);
    EXPECT_GT(flops, 1e7) << Name(set);
    EXPECT_LT(flops, 1e12) << Name(set);
  }
  const double bytes = MeasureReadBytesPerSecond(2);
  EXPECT_GT(bytes, 1e7);
  EXPECT_LT(bytes, 1e13);
}

}  // namespace
}  // namespace tetrad::cpu
