// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activations expanded by the device are, bit by bit, what the definitions of codes,
// scales and FP16 make of them on the host.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gpu_test_device.h"
#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/random.h"
#include "kernels/sm90/expand.h"

namespace tetrad::sm90 {
namespace {

constexpr size_t kMargin = 256;
constexpr uint8_t kStale = 0xA5;

// A stack of groups.
struct Activations {
  std::vector<int32_t> m;
  int32_t k = 0;
  ScaleLayout layout = ScaleLayout::kLinear;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// Where the group's plane of scales begins.
size_t PlaneOf(const Activations& of, size_t group) {
  int64_t bytes = 0;
  for (size_t g = 0; g < group; ++g) bytes += ScalePlaneBytes(of.layout, of.m[g], of.k);
  return static_cast<size_t>(bytes);
}

// Calls use(row of the stack, block, byte of its scale).
template <class Use>
void ForEachBlock(const Activations& of, const Use& use) {
  int64_t first_row = 0;
  for (size_t g = 0; g < of.m.size(); ++g) {
    for (int64_t row = 0; row < of.m[g]; ++row) {
      for (int64_t block = 0; block < of.k / kScaleBlock; ++block) {
        use(first_row + row, block,
            PlaneOf(of, g) + static_cast<size_t>(ScaleOffset(of.layout, row, block, of.k)));
      }
    }
    first_row += of.m[g];
  }
}

int32_t RowsOf(const Activations& of) { return std::accumulate(of.m.begin(), of.m.end(), 0); }

// Any codes, any scales; NaN in what pads a blocked plane.
Activations Draw(std::vector<int32_t> m, int32_t k, ScaleLayout layout) {
  Random random(23);
  Activations drawn{std::move(m), k, layout, {}, {}};
  drawn.codes.resize(static_cast<size_t>(CodeBytes(RowsOf(drawn), k)));
  drawn.scales.resize(PlaneOf(drawn, drawn.m.size()), kUe4m3Nan);
  for (uint8_t& byte : drawn.codes) byte = static_cast<uint8_t>(random.Next() >> 32);
  ForEachBlock(drawn, [&](int64_t, int64_t, size_t at) {
    drawn.scales[at] = static_cast<uint8_t>(random.Next() >> 32);
  });
  return drawn;
}

std::vector<uint16_t> ExpandOnHost(const Activations& from) {
  std::vector<uint16_t> expanded;
  ForEachBlock(from, [&](int64_t row, int64_t block, size_t at) {
    const uint8_t* const codes = from.codes.data() + CodeBytes(row, from.k);
    for (int64_t k = block * kScaleBlock; k < (block + 1) * kScaleBlock; ++k) {
      expanded.push_back(
          EncodeFp16(DecodeE2m1(UnpackCode(codes, k)) * DecodeUe4m3(from.scales[at])));
    }
  });
  return expanded;
}

std::vector<ExpandGroup> TableOf(const Activations& of) {
  std::vector<ExpandGroup> table;
  ExpandGroup next;
  for (const int32_t m : of.m) {
    table.push_back(next);
    next.row += m;
    next.row_block += static_cast<int32_t>(CeilDiv(m, kScaleTileRows));
  }
  return table;
}

class ExpandGpuTest : public cuda::GpuTest {
 protected:
  // What lies where the memory ends.
  enum class AtEnd { kNothing, kCodes, kScales };

  template <class T>
  const T* Upload(const std::vector<T>& values, bool at_end = false) {
    const auto bytes = std::as_bytes(std::span(values));
    const CUdeviceptr at = at_end ? device().arena() + kArenaBytes - bytes.size()
                                  : device().Allocate(bytes.size() + 1);
    device().Upload(at, bytes);
    return reinterpret_cast<const T*>(at);
  }

  // The result, if nothing was written around it.
  std::vector<uint16_t> ExpandOnDevice(const Activations& from, int grid,
                                       AtEnd at_end = AtEnd::kNothing) {
    device().Reset();
    const auto count = static_cast<size_t>(RowsOf(from)) * static_cast<size_t>(from.k);
    const size_t bytes = count * sizeof(uint16_t) + 2 * kMargin;
    const CUdeviceptr room = device().Allocate(bytes);
    device().Fill(room, kStale, bytes);
    ExpandArguments arguments;
    arguments.codes = Upload(from.codes, at_end == AtEnd::kCodes);
    arguments.scales = Upload(from.scales, at_end == AtEnd::kScales);
    arguments.expanded = reinterpret_cast<uint16_t*>(room + kMargin);
    if (from.layout == ScaleLayout::kBlocked) {
      arguments.groups = Upload(TableOf(from));
      arguments.group_count = static_cast<int32_t>(from.m.size());
    }
    arguments.rows = RowsOf(from);
    arguments.k = from.k;
    arguments.scale_layout = from.layout;
    device().Launch(device().Function("expand", kExpandEntry), grid, kExpandThreads, 0, arguments);
    std::vector<uint8_t> all(bytes);
    device().Download(std::as_writable_bytes(std::span(all)), room);
    const auto stale = [](uint8_t byte) { return byte == kStale; };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kMargin, stale));
    EXPECT_TRUE(std::all_of(all.end() - kMargin, all.end(), stale));
    std::vector<uint16_t> expanded(count);
    // Of nothing there is no address.
    if (count > 0) std::memcpy(expanded.data(), all.data() + kMargin, count * sizeof(uint16_t));
    return expanded;
  }

  void ExpectWhatTheHostMakes(const Activations& from, int grid) {
    const std::vector<uint16_t> expected = ExpandOnHost(from);
    const std::vector<uint16_t> got = ExpandOnDevice(from, grid);
    ASSERT_EQ(got.size(), expected.size());
    const auto at = static_cast<size_t>(
        std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin());
    if (at == got.size()) return;
    ADD_FAILURE() << "k " << from.k << " layout " << static_cast<int>(from.layout) << " groups "
                  << from.m.size() << " grid " << grid << ": row "
                  << at / static_cast<size_t>(from.k) << " k " << at % static_cast<size_t>(from.k)
                  << " is " << got[at] << ", not " << expected[at];
  }
};

constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};

TEST_F(ExpandGpuTest, IsWhatTheHostMakes) {
  const bool all = cuda::TestEffort() == cuda::Effort::kAll;
  std::vector<std::vector<int32_t>> groups = {{1}, {0, 129, 0, 0, 3, 128, 1, 0}, {5, 0, 33, 257}};
  if (all) {
    groups.push_back({1000});
    groups.emplace_back(300, 3);  // one row-block each
  }
  for (const int32_t k : {32, 96, 160, 4096}) {
    for (const std::vector<int32_t>& m : groups) {
      if (k == 4096 && m.size() > 1 && !all) continue;
      for (const ScaleLayout layout : kLayouts) {
        const Activations drawn = Draw(m, k, layout);
        for (const int grid : {1, 3, 1000}) {
          if (grid == 1000 && !all) continue;
          ExpectWhatTheHostMakes(drawn, grid);
        }
      }
    }
  }
  // Pieces that end within a row, and groups within a row of pieces.
  for (const ScaleLayout layout : kLayouts) {
    ExpectWhatTheHostMakes(Draw({2, 0, 1, 130}, kExpandPieceCodes + 96, layout), 3);
  }
}

// Every code under every scale byte; block b has scale b.
TEST_F(ExpandGpuTest, EveryCodeUnderEveryScale) {
  constexpr int32_t kScales = 256;
  for (const ScaleLayout layout : kLayouts) {
    Activations from = Draw({1}, kScales * kScaleBlock, layout);
    for (size_t i = 0; i < from.codes.size(); ++i) {
      from.codes[i] = static_cast<uint8_t>(i % 8 * 0x22 + 0x10);  // 0, 1; 2, 3; ...
    }
    ForEachBlock(from, [&](int64_t, int64_t block, size_t at) {
      from.scales[at] = static_cast<uint8_t>(block);
    });
    ExpectWhatTheHostMakes(from, 2);
    const std::vector<uint16_t> got = ExpandOnDevice(from, 2);
    // 6 * 448, the largest; -6 under a NaN; 0.5 * 2^-9 with bit 7 set, the smallest.
    const auto number = [&](size_t scale, size_t code) { return got[scale * kScaleBlock + code]; };
    EXPECT_EQ(number(0x7E, 7), EncodeFp16(2688));
    for (size_t code = 0; code < 16; ++code) {
      EXPECT_EQ(number(0x7F, code), 0x7FFF);
      EXPECT_EQ(number(0xFF, code), 0x7FFF);
    }
    EXPECT_EQ(number(0x81, 1), EncodeFp16(0x1p-10f));
  }
}

// Beyond the end of memory there is none: a read ends the program.
TEST_F(ExpandGpuTest, ReadsNothingBeyond) {
  for (const ScaleLayout layout : kLayouts) {
    // Both end at a multiple of 16, as addresses must; a blocked plane with the last row.
    const Activations from = Draw({128}, 96, layout);
    const std::vector<uint16_t> expected = ExpandOnHost(from);
    EXPECT_TRUE(ExpandOnDevice(from, 2, AtEnd::kCodes) == expected);
    EXPECT_TRUE(ExpandOnDevice(from, 2, AtEnd::kScales) == expected);
  }
}

TEST_F(ExpandGpuTest, NoRows) {
  for (const ScaleLayout layout : kLayouts) {
    ExpectWhatTheHostMakes(Draw({0, 0}, 64, layout), 1);
  }
}

TEST(ExpandTest, PiecesAndCtas) {
  EXPECT_EQ(ExpandPieces(0, 4096), 0);
  EXPECT_EQ(ExpandPieces(3, 32), 3);
  EXPECT_EQ(ExpandPieces(3, 1024), 3);
  EXPECT_EQ(ExpandPieces(3, 1056), 6);
  EXPECT_EQ(ExpandCtas(3, 1056), 2);
}

}  // namespace
}  // namespace tetrad::sm90
