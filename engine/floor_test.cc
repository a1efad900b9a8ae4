// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/floor.h"

#include <gtest/gtest.h>

#include "kernels/shapes.h"

namespace tetrad {
namespace {

Signature Of(std::span<const GroupShape> groups) {
  Signature s;
  s.groups.assign(groups.begin(), groups.end());
  return s;
}

// The published byte counts of the benchmark shapes, in MB.
TEST(FloorTest, BenchmarkShapesMoveThePublishedBytes) {
  const double megabytes[] = {144.64, 81.92, 18.48, 11.71};
  for (size_t i = 0; i < 4; ++i) {
    const Floor floor = ComputeFloor(Of(kBenchmarkShapes[i].groups), {});
    EXPECT_NEAR(floor.bytes * 1e-6, megabytes[i], 0.005) << kBenchmarkShapes[i].name;
    EXPECT_EQ(floor.floor_us(), 0);
  }
}

TEST(FloorTest, TakesTheLargerOfArithmeticAndMemory) {
  const Signature s = Of(kShapeS1);
  const double flops = 2.0 * 1024 * 4096 * 7168;
  Floor floor = ComputeFloor(s, {.flops_per_second = 799e12, .read_bytes_per_second = 4.44e12});
  EXPECT_DOUBLE_EQ(floor.flops, flops);
  EXPECT_NEAR(floor.compute_us, 75.2, 0.1);
  EXPECT_NEAR(floor.memory_us, 32.6, 0.1);
  EXPECT_EQ(floor.floor_us(), floor.compute_us);
  floor = ComputeFloor(s, {.flops_per_second = 1e20, .read_bytes_per_second = 4.44e12});
  EXPECT_EQ(floor.floor_us(), floor.memory_us);
}

TEST(FloorTest, EmptyGroupsCostNothing) {
  const GroupShape with[] = {{3, 64, 64}, {0, 4096, 7168}}, without[] = {{3, 64, 64}};
  EXPECT_EQ(ComputeFloor(Of(with), {}).bytes, ComputeFloor(Of(without), {}).bytes);
}

TEST(FloorTest, CountsOperandsAsStored) {
  Signature s = Of(std::vector<GroupShape>{{10, 64, 160}});
  const double weights = 64 * 160 * (0.5 + 1.0 / 16);
  EXPECT_DOUBLE_EQ(ComputeFloor(s, {}).bytes, weights + 10 * 160 * (0.5 + 1.0 / 16) + 10 * 64 * 2);
  s.types.a_type = ActivationType::kBf16;
  s.types.c_type = OutputType::kFp32;
  s.row_scale = true;
  EXPECT_DOUBLE_EQ(ComputeFloor(s, {}).bytes, weights + 10 * 160 * 2 + 10 * 64 * 4 + 10 * 4);
}

}  // namespace
}  // namespace tetrad
