// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Packing and unpacking by the device are what the host makes of the same bytes.
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gpu_test_device.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad::sm90 {
namespace {

constexpr size_t kMargin = 256;
constexpr uint8_t kUntouched = 0xA5;

class PackGpuTest : public cuda::GpuTest {
 protected:
  CUdeviceptr Upload(const std::vector<uint8_t>& bytes) {
    const CUdeviceptr at = device().Allocate(bytes.size() + 1);
    device().Upload(at, std::as_bytes(std::span(bytes)));
    return at;
  }
  // Room for `bytes` with a margin on both sides; all of it stale.
  CUdeviceptr Room(size_t bytes) {
    const CUdeviceptr at = device().Allocate(bytes + 2 * kMargin);
    device().Fill(at, kUntouched, bytes + 2 * kMargin);
    return at + kMargin;
  }
  // What a Room() holds now, if nothing was written around it.
  std::vector<uint8_t> Download(CUdeviceptr at, size_t bytes) {
    std::vector<uint8_t> all(bytes + 2 * kMargin);
    device().Download(std::as_writable_bytes(std::span(all)), at - kMargin);
    for (size_t i = 0; i < kMargin; ++i) {
      EXPECT_EQ(all[i], kUntouched);
      EXPECT_EQ(all[all.size() - 1 - i], kUntouched);
    }
    return {all.begin() + kMargin, all.end() - kMargin};
  }

  std::vector<uint8_t> PackOnDevice(const SampleWeights& from, int grid) {
    const auto bytes =
        static_cast<size_t>(from.stack.groups * PackedBytes(from.stack.n, from.stack.k));
    const CUdeviceptr packed = Room(bytes);
    const PackArguments arguments{reinterpret_cast<const uint8_t*>(Upload(from.codes)),
                                  reinterpret_cast<const uint8_t*>(Upload(from.scales)),
                                  reinterpret_cast<uint8_t*>(packed), from.stack};
    device().Launch(device().Function("pack", kPackEntry), grid, kPackThreads, 0, arguments);
    return Download(packed, bytes);
  }
  SampleWeights UnpackOnDevice(const WeightsStack& stack, const std::vector<uint8_t>& packed,
                               int grid) {
    SampleWeights result = EmptyWeights(stack);
    const CUdeviceptr codes = Room(result.codes.size());
    const CUdeviceptr scales = Room(result.scales.size());
    const UnpackArguments arguments{reinterpret_cast<const uint8_t*>(Upload(packed)),
                                    reinterpret_cast<uint8_t*>(codes),
                                    reinterpret_cast<uint8_t*>(scales), stack};
    device().Launch(device().Function("pack", kUnpackEntry), grid, kPackThreads, 0, arguments);
    result.codes = Download(codes, result.codes.size());
    result.scales = Download(scales, result.scales.size());
    return result;
  }
};

TEST_F(PackGpuTest, IsWhatTheHostMakes) {
  std::vector<WeightsStack> stacks = {{.groups = 2, .n = 129, .k = 96},
                                      {.groups = 1, .n = 7, .k = 32},
                                      {.groups = 1, .n = 128, .k = 256},
                                      {.groups = 3, .n = 33, .k = 288}};
  if (cuda::TestEffort() == cuda::Effort::kAll) {
    for (const int32_t n : {1, 127, 130, 257, 1001}) {
      for (const int32_t k : {32, 64, 160, 224, 320, 4096, 7168}) {
        stacks.push_back({.groups = 3, .n = n, .k = k});
      }
    }
  }
  for (WeightsStack stack : stacks) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      stack.scale_layout = layout;
      const SampleWeights weights = DrawWeights(stack, 17);
      const std::vector<uint8_t> expected = Packed(weights);
      const SampleWeights back = WithoutJunk(weights);
      for (const int grid : {3, 1000}) {
        if (grid == 1000 && cuda::TestEffort() == cuda::Effort::kSample) continue;
        device().Reset();
        EXPECT_TRUE(PackOnDevice(weights, grid) == expected)
            << stack.groups << " " << stack.n << " " << stack.k << " " << grid;
        const SampleWeights unpacked = UnpackOnDevice(stack, expected, grid);
        EXPECT_TRUE(unpacked.codes == back.codes) << stack.n << " " << stack.k << " " << grid;
        EXPECT_TRUE(unpacked.scales == back.scales) << stack.n << " " << stack.k << " " << grid;
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90
