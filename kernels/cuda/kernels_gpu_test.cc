// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The small kernels on a device: completion, replay proof.
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/proof.h"

namespace tetrad::cuda {
namespace {

using CompletionGpuTest = GpuTest;
using ProofGpuTest = GpuTest;

TEST_F(CompletionGpuTest, RecordsFollowEachOtherAndTheErrorWordIsTaken) {
  constexpr uint32_t kDepth = 3;
  CUdeviceptr records = 0;
  void* const host = device().AllocateHost(kDepth * sizeof(CompletionRecord), &records);
  const volatile CompletionRecord* const seen = new (host) CompletionRecord[kDepth];
  const CUdeviceptr at = device().Allocate(sizeof(LaunchState));
  const CUfunction completion = device().Function("completion", kCompletionEntry);
  const CompletionArguments arguments{.state = reinterpret_cast<LaunchState*>(at),
                                      .records = reinterpret_cast<CompletionRecord*>(records),
                                      .depth = kDepth};
  LaunchState state;
  for (uint64_t launch = 1; launch <= 2 * kDepth + 1; ++launch) {
    const auto error = static_cast<uint32_t>(launch % 4);
    state.error_word = error;
    state.begun_ns = launch % 2 == 0 ? 0 : ~uint64_t{0};  // long ago; in the future
    device().Upload(at, std::as_bytes(std::span(&state, 1)));
    device().Launch(completion, 1, 32, 0, arguments);
    device().Synchronize();
    const volatile CompletionRecord& record = seen[(launch - 1) % kDepth];
    EXPECT_EQ(record.sequence, launch);
    EXPECT_EQ(record.error_word, error);
    if (launch % 2 == 0) {
      EXPECT_GT(record.device_ns, 1u);
    } else {
      EXPECT_EQ(record.device_ns, 1u);
    }
    device().Download(std::as_writable_bytes(std::span(&state, 1)), at);
    EXPECT_EQ(state.launches, launch);
    EXPECT_EQ(state.error_word, 0u);
  }
}

std::vector<std::byte> Filled(DirectDevice& device, CUdeviceptr at, size_t bytes, uint32_t seed,
                              ProofFill fill, int grid) {
  device.Fill(at, 0xEE, bytes + 64);
  device.Launch(device.Function("proof", kProofFillEntry), grid, kProofThreads, 0, at,
                static_cast<int64_t>(bytes), seed, fill);
  std::vector<std::byte> result(bytes + 64);
  device.Download(result, at);
  return result;
}

TEST_F(ProofGpuTest, FillIsAFunctionOfSeedAndPosition) {
  const CUdeviceptr at = device().Allocate(1 << 20);
  for (const ProofFill fill : {ProofFill::kCodes, ProofFill::kScales, ProofFill::kFp16,
                               ProofFill::kBf16, ProofFill::kFp32}) {
    for (const size_t bytes : {0, 1, 15, 16, 17, 4096 + 13, 300000}) {
      for (const int grid : {1, 9}) {
        const auto filled = Filled(device(), at, bytes, 7, fill, grid);
        for (size_t i = 0; i < filled.size(); ++i) {
          const uint32_t expected =
              i < bytes ? ProofWord(fill, 7, i / 4) >> (i % 4 * 8) & 0xFF : 0xEE;
          ASSERT_EQ(static_cast<uint32_t>(filled[i]), expected) << i << " of " << bytes;
        }
      }
    }
  }
}

TEST_F(ProofGpuTest, CompareCountsEveryByte) {
  constexpr size_t kBytes = 100000 + 7;
  const CUdeviceptr x = device().Allocate(kBytes);
  const CUdeviceptr y = device().Allocate(kBytes);
  const CUdeviceptr count = device().Allocate(8);
  std::vector<std::byte> bytes(kBytes, std::byte{1});
  device().Upload(x, bytes);
  uint64_t expected = 5;  // what was there is added to
  for (const size_t at :
       {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{50000}, kBytes - 1}) {
    bytes[at] = std::byte{3};
    ++expected;
  }
  device().Upload(y, bytes);
  for (const int grid : {1, 13}) {
    uint64_t found = 5;
    device().Upload(count, std::as_bytes(std::span(&found, 1)));
    device().Launch(device().Function("proof", kProofCompareEntry), grid, kProofThreads, 0, x, y,
                    static_cast<int64_t>(kBytes), count);
    device().Download(std::as_writable_bytes(std::span(&found, 1)), count);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace tetrad::cuda
