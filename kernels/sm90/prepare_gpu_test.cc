// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tokens prepared by the device are, bit by bit, what the definitions of codes, scales and
// FP16 make of them on the host, and nothing else is written. With device-side M the
// reference of where rows lie is cpu::ResolveDeviceM.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/random.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::sm90 {
namespace {

constexpr size_t kMarginRows = 2;
constexpr uint16_t kStale = 0xA5A5;

// Some rows that are one operand, and where their tokens go.
struct Part {
  int64_t a = 0;  // bytes from the operands' bases
  int64_t a_scales = 0;
  int64_t row = 0;  // of the tokens
  int32_t m = 0;
  int32_t k = 0;
};

// A launch and all that it reads.
struct Case {
  ActivationType type = ActivationType::kNvfp4;
  ScaleLayout layout = ScaleLayout::kLinear;
  MSource source = MSource::kHost;
  int32_t groups = 0;
  int64_t capacity = 0;
  std::vector<int32_t> values;
  int32_t rows = 0;
  int32_t k = 0;  // the pitch, too
  std::vector<Part> parts;
  std::vector<uint8_t> a;       // end where nothing more may be read
  std::vector<uint8_t> scales;  // NaN where no scale is
};

// Calls use(index in the part, block of 16, byte of its scale).
template <class Use>
void ForEachBlock(const Case& of, const Part& part, const Use& use) {
  for (int64_t row = 0; row < part.m; ++row) {
    for (int64_t block = 0; block < part.k / kScaleBlock; ++block) {
      use(row, block,
          static_cast<size_t>(part.a_scales + ScaleOffset(of.layout, row, block, part.k)));
    }
  }
}

// Any bytes, as many as the parts need.
void DrawBytes(Case& into, Random& random) {
  const bool nvfp4 = into.type == ActivationType::kNvfp4;
  size_t a_end = 0;
  size_t scales_end = 0;
  for (const Part& part : into.parts) {
    if (part.m == 0) continue;
    const int64_t bytes = ActivationBytes(into.type, part.m, part.k);
    a_end = std::max(a_end, static_cast<size_t>(part.a + bytes));
    if (!nvfp4) continue;
    ForEachBlock(into, part,
                 [&](int64_t, int64_t, size_t at) { scales_end = std::max(scales_end, at + 1); });
  }
  const auto any = [&] { return static_cast<uint8_t>(random.Next() >> 32); };
  into.a.resize(a_end);
  std::ranges::generate(into.a, any);
  into.scales.assign(scales_end, kUe4m3Nan);
  if (!nvfp4) return;
  for (const Part& part : into.parts) {
    ForEachBlock(into, part, [&](int64_t, int64_t, size_t at) { into.scales[at] = any(); });
  }
}

// Groups apart from each other, in any order.
Case HostCase(ActivationType type, ScaleLayout layout, const std::vector<GroupShape>& groups,
              Random& random) {
  Case result{.type = type, .layout = layout, .groups = static_cast<int32_t>(groups.size())};
  for (const GroupShape& group : groups) {
    result.parts.push_back({0, 0, result.rows, group.m, group.k});
    result.rows += group.m;
    result.k = std::max(result.k, group.k);
  }
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(static_cast<uint32_t>(i))]);
  }
  int64_t a = 0;
  int64_t scales = 0;
  for (const size_t g : order) {
    Part& part = result.parts[g];
    part.a = a + kOperandAlignment * random.Below(4);
    part.a_scales = scales + random.Below(40);
    a = part.a + ActivationBytes(type, part.m, part.k);
    scales = part.a_scales + ScalePlaneBytes(layout, part.m, part.k);
  }
  DrawBytes(result, random);
  return result;
}

Case LiveCase(ActivationType type, ScaleLayout layout, MSource source, int64_t capacity, int32_t k,
              std::vector<int32_t> values, Random& random) {
  const bool counts = source == MSource::kCounts;
  const auto groups = static_cast<int32_t>(values.size()) - (counts ? 0 : 1);
  Case result{type, layout, source, groups, capacity, std::move(values)};
  result.rows = static_cast<int32_t>(capacity * (counts ? groups : 1));
  result.k = k;
  // Where addresses count from; nothing is read through them.
  const std::vector<uint8_t> base(1);
  const auto offset = [&](const uint8_t* address) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) -
                                reinterpret_cast<uintptr_t>(base.data()));
  };
  DeviceMProblem problem;
  problem.m_source = source;
  problem.groups = groups;
  problem.k = k;
  problem.capacity_rows = capacity;
  problem.m_values = result.values.data();
  std::vector<GroupProblem> resolved(static_cast<size_t>(groups));
  uint32_t error = 0;
  problem.a = base.data();
  problem.a_scales = base.data();
  cpu::ResolveDeviceM(problem, {.a_type = type, .a_scale_layout = layout}, resolved, &error);
  for (const GroupProblem& group : resolved) {
    const int64_t a = offset(group.a);
    result.parts.push_back(
        {a, offset(group.a_scales), a / ActivationBytes(type, 1, k), group.m, k});
  }
  DrawBytes(result, random);
  return result;
}

// All tokens with their margins, stale before.
std::vector<uint16_t> OnHost(const Case& from) {
  const auto pitch = static_cast<size_t>(from.k);
  std::vector<uint16_t> tokens((static_cast<size_t>(from.rows) + 2 * kMarginRows) * pitch, kStale);
  for (const Part& part : from.parts) {
    for (int64_t row = 0; row < part.m; ++row) {
      uint16_t* const to =
          tokens.data() + (static_cast<size_t>(part.row + row) + kMarginRows) * pitch;
      const uint8_t* const a = from.a.data() + part.a + ActivationBytes(from.type, row, part.k);
      if (from.type != ActivationType::kNvfp4) {
        std::memcpy(to, a, static_cast<size_t>(part.k) * sizeof(uint16_t));
      }
      std::fill(to + part.k, to + std::min<int64_t>(RoundUp(part.k, 64), from.k), uint16_t{0});
    }
    if (from.type != ActivationType::kNvfp4) continue;
    ForEachBlock(from, part, [&](int64_t row, int64_t block, size_t at) {
      const uint8_t* const codes = from.a.data() + part.a + CodeBytes(row, part.k);
      const size_t to = (static_cast<size_t>(part.row + row) + kMarginRows) * pitch;
      for (int64_t k = block * kScaleBlock; k < (block + 1) * kScaleBlock; ++k) {
        tokens[to + static_cast<size_t>(k)] =
            EncodeFp16(DecodeE2m1(UnpackCode(codes, k)) * DecodeUe4m3(from.scales[at]));
      }
    });
  }
  return tokens;
}

std::string Describe(const Case& of) {
  std::ostringstream text;
  text << "type " << static_cast<int>(of.type) << " layout " << static_cast<int>(of.layout)
       << " source " << static_cast<int>(of.source) << " pitch " << of.k << " rows " << of.rows
       << " capacity " << of.capacity << " groups " << of.groups << " of m x k";
  for (size_t g = 0; g < std::min<size_t>(of.parts.size(), 40); ++g) {
    text << " " << of.parts[g].m << "x" << of.parts[g].k << "@" << of.parts[g].row;
  }
  return text.str();
}

class PrepareGpuTest : public cuda::GpuTest {
 protected:
  // What lies where the memory ends: reading beyond it ends the program.
  enum class AtEnd { kActivations, kScales };

  // What arguments hold of an address.
  template <class T>
  static T* Pointer(CUdeviceptr address) {
    return std::bit_cast<T*>(address);
  }

  template <class T>
  CUdeviceptr Upload(const std::vector<T>& values, bool at_end = false) {
    const auto bytes = std::as_bytes(std::span(values));
    const auto room =
        static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes.size()), kOperandAlignment));
    const CUdeviceptr at =
        at_end ? device().arena() + kArenaBytes - room : device().Allocate(bytes.size() + 1);
    device().Upload(at, bytes);
    return at;
  }

  std::vector<uint16_t> OnDevice(const Case& from, int grid, AtEnd at_end) {
    device().Reset();
    const auto pitch = static_cast<size_t>(from.k);
    std::vector<uint16_t> tokens((static_cast<size_t>(from.rows) + 2 * kMarginRows) * pitch,
                                 kStale);
    const CUdeviceptr room = Upload(tokens);
    PrepareArguments arguments;
    // So that memory ends with the last scale: bases are multiples of 16, offsets of nothing.
    std::vector<uint8_t> scales = from.scales;
    const bool host = from.source == MSource::kHost;
    const auto shift = static_cast<int64_t>(host ? 15 - (scales.size() + 15) % 16 : 0);
    scales.insert(scales.begin(), static_cast<size_t>(shift), kUe4m3Nan);
    arguments.a = Pointer<const uint8_t>(Upload(from.a, at_end == AtEnd::kActivations));
    if (from.type == ActivationType::kNvfp4) {
      arguments.a_scales = Pointer<const uint8_t>(Upload(scales, at_end == AtEnd::kScales));
    }
    arguments.tokens = Pointer<uint16_t>(room) + kMarginRows * pitch;
    if (host) {
      std::vector<PrepareGroup> table;
      for (const Part& part : from.parts) {
        table.push_back({part.a, part.a_scales + shift, static_cast<int32_t>(part.row), part.k});
      }
      table.push_back({0, 0, 0, 1 << 20});  // none
      arguments.groups = Pointer<const PrepareGroup>(Upload(table));
    } else {
      std::vector<int32_t> values = from.values;
      values.resize(values.size() + 200, static_cast<int32_t>(from.capacity));  // none
      arguments.m_values = Pointer<const int32_t>(Upload(values));
      arguments.capacity_rows = from.capacity;
      arguments.k = from.k;
    }
    const std::vector<cuda::LaunchState> before = {{.begun_ns = 1, .launches = 2, .error_word = 3}};
    const CUdeviceptr state = Upload(before);
    arguments.state = Pointer<cuda::LaunchState>(state);
    arguments.rows = from.rows;
    arguments.pitch = from.k;
    arguments.group_count = from.groups;
    arguments.a_type = from.type;
    arguments.a_scale_layout = from.layout;
    arguments.m_source = from.source;
    device().Launch(device().Function("prepare", kPrepareEntry), grid, kPrepareThreads, 0,
                    arguments);
    device().Download(std::as_writable_bytes(std::span(tokens)), room);
    std::vector<cuda::LaunchState> after(1);
    device().Download(std::as_writable_bytes(std::span(after)), state);
    EXPECT_GT(after[0].begun_ns, 1u) << Describe(from);
    after[0].begun_ns = before[0].begun_ns;
    EXPECT_EQ(std::memcmp(after.data(), before.data(), sizeof(cuda::LaunchState)), 0)
        << "of the state more than begun_ns was written: " << Describe(from);
    return tokens;
  }

  void ExpectWhatTheHostMakes(const Case& from, int grid) {
    const std::vector<uint16_t> expected = OnHost(from);
    for (const AtEnd at_end : {AtEnd::kActivations, AtEnd::kScales}) {
      if (at_end == AtEnd::kScales && from.type != ActivationType::kNvfp4) continue;
      const std::vector<uint16_t> got = OnDevice(from, grid, at_end);
      ASSERT_EQ(got.size(), expected.size());
      const auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
      if (at == static_cast<int64_t>(got.size())) continue;
      size_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected[i] ? 1 : 0;
      ADD_FAILURE() << Describe(from) << " grid " << grid << ": row "
                    << at / from.k - static_cast<int64_t>(kMarginRows) << " k " << at % from.k
                    << " is " << std::hex << got[static_cast<size_t>(at)] << ", not "
                    << expected[static_cast<size_t>(at)] << std::dec << "; " << wrong
                    << " numbers are wrong";
    }
  }
};

constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};
constexpr ActivationType kTypes[] = {ActivationType::kNvfp4, ActivationType::kFp16,
                                     ActivationType::kBf16};

// Calls use(type, layout) for each that there is.
template <class Use>
void ForEachKind(const Use& use) {
  for (const ActivationType type : kTypes) {
    for (const ScaleLayout layout : kLayouts) {
      if (layout == ScaleLayout::kBlocked && type != ActivationType::kNvfp4) continue;
      use(type, layout);
    }
  }
}

// Ends of pieces, of blocked tiles and of the 64 numbers of a step lie within these.
constexpr int32_t kDepths[] = {32, 96, 1024 + 32, 16416};
constexpr int32_t kHeights[] = {0, 1, 7, 8, 9, 255, 256, 257};

template <class T, size_t kCount>
T OneOf(const T (&from)[kCount], Random& random) {
  return from[random.Below(kCount)];
}

// Of CTAs, too few, about enough or far too many.
int DrawGrid(Random& random) {
  const bool all = cuda::TestEffort() == cuda::Effort::kAll;
  return all && random.OneIn(3) ? 1000 : random.Between(1, 9);
}

TEST_F(PrepareGpuTest, HostGroups) {
  const bool all = cuda::TestEffort() == cuda::Effort::kAll;
  Random random(29);
  std::vector<std::vector<GroupShape>> launches = {
      {{.m = 0, .k = 64}, {.m = 0, .k = 64}},
      {{.m = 1, .k = 32}},
      {{.m = 9, .k = 16416}, {.m = 0, .k = 32}, {.m = 7, .k = 96}, {.m = 2, .k = 1056}},
      {{.m = 257, .k = 96}, {.m = 0, .k = 64}, {.m = 256, .k = 32}, {.m = 255, .k = 128}},
      {{.m = 8, .k = 1056}, {.m = 1, .k = 1024}, {.m = 9, .k = 992}, {.m = 0, .k = 2048}},
  };
  for (const int32_t groups : {31, 33, 1200}) {  // one, two and three rounds of the search
    std::vector<GroupShape>& launch = launches.emplace_back();
    for (int32_t g = 0; g < groups; ++g) {
      launch.push_back({.m = random.Between(0, 2), .k = 32 * random.Between(1, 3)});
    }
  }
  for (int i = 0; i < (all ? 24 : 6); ++i) {
    std::vector<GroupShape>& launch = launches.emplace_back();
    const int32_t deepest = all ? 4 : 3;
    for (int32_t g = random.Between(1, 9); g > 0; --g) {
      const auto depth = static_cast<size_t>(random.Between(0, deepest - 1));
      launch.push_back({.m = OneOf(kHeights, random), .k = kDepths[depth]});
    }
  }
  for (const std::vector<GroupShape>& launch : launches) {
    ForEachKind([&](ActivationType type, ScaleLayout layout) {
      ExpectWhatTheHostMakes(HostCase(type, layout, launch, random), DrawGrid(random));
    });
  }
}

// Any values, of which one in `wild` is none that a count or an offset may have.
std::vector<int32_t> DrawValues(MSource source, int32_t groups, int32_t capacity, uint32_t wild,
                                Random& random) {
  constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
  constexpr int32_t kHighest = std::numeric_limits<int32_t>::max();
  const int32_t strange[] = {kLowest, -1, capacity + 1, kHighest, random.Between(0, capacity)};
  std::vector<int32_t> values;
  for (int32_t g = 0; g < groups; ++g) {
    values.push_back(source == MSource::kOffsets ? random.Between(0, capacity)
                                                 : std::min(OneOf(kHeights, random), capacity));
  }
  if (source == MSource::kOffsets) {
    values.push_back(capacity);
    std::ranges::sort(values);
    values[0] = 0;
  }
  if (wild == 0) return values;
  for (int32_t& value : values) {
    if (random.OneIn(wild)) value = OneOf(strange, random);
  }
  return values;
}

TEST_F(PrepareGpuTest, LiveRows) {
  const bool all = cuda::TestEffort() == cuda::Effort::kAll;
  constexpr MSource kCounts = MSource::kCounts;
  constexpr MSource kOffsets = MSource::kOffsets;
  struct Launch {
    MSource source;
    int32_t capacity;
    int32_t k;
    std::vector<int32_t> values;
  };
  std::vector<Launch> launches = {
      {kCounts, 9, 1056, {8, 0, 9, 1, 7}},
      {kCounts, 9, 96, {-1, 10, 0, 2147483647, -2147483647 - 1}},
      {kCounts, 257, 32, {257, 0, 255, 256, 1}},
      {kCounts, 128, 96, {129, 128, 127}},
      {kCounts, 7, 32, {0, 0, 0}},
      {kOffsets, 20, 16416, {0, 1, 1, 8, 17}},
      {kOffsets, 600, 96, {0, 257, 257, 513, 600}},
      {kOffsets, 300, 32, {5, 133, 134, 290}},              // the first is not 0
      {kOffsets, 300, 96, {7, 0, 140, 130, 139, 141, 20}},  // and they fall
      {kOffsets, 300, 96, {-3, 128, 301, 4, 300}},
      {kOffsets, 40, 96, {41, 0, 12, 40}},  // none lives
      {kOffsets, 40, 32, {0, 2147483647, -1, 3}},
      {kOffsets, 40, 32, {-2147483647 - 1, -7, -1, 0}},
  };
  Random random(31);
  for (const int32_t groups : {1, 127, 128, 129, 300}) {  // windows have 128
    for (const uint32_t wild : {0, 5}) {
      launches.push_back({kCounts, 9, 32, DrawValues(kCounts, groups, 9, wild, random)});
      launches.push_back(
          {kOffsets, 3 * groups, 32, DrawValues(kOffsets, groups, 3 * groups, 4 * wild, random)});
    }
  }
  for (int i = 0; i < (all ? 24 : 6); ++i) {
    const int32_t k = kDepths[random.Below(all ? 4 : 3)];
    const MSource source = i % 2 == 0 ? kCounts : kOffsets;
    const int32_t capacity = random.Between(1, source == kCounts ? 257 : 900);
    const uint32_t wild = random.Between(0, 1) * 6;
    launches.push_back(
        {source, capacity, k, DrawValues(source, random.Between(1, 9), capacity, wild, random)});
  }
  if (all) {
    launches.push_back({kCounts, 3, 32, DrawValues(kCounts, 131072, 3, 7, random)});
    launches.push_back({kOffsets, 200000, 32, DrawValues(kOffsets, 131072, 200000, 0, random)});
  }
  for (const Launch& launch : launches) {
    ForEachKind([&](ActivationType type, ScaleLayout layout) {
      ExpectWhatTheHostMakes(
          LiveCase(type, layout, launch.source, launch.capacity, launch.k, launch.values, random),
          DrawGrid(random));
    });
  }
}

// Every code under every scale byte; block b has scale b.
TEST_F(PrepareGpuTest, EveryCodeUnderEveryScale) {
  constexpr int32_t kScales = 256;
  Random random(37);
  for (const ScaleLayout layout : kLayouts) {
    Case from =
        HostCase(ActivationType::kNvfp4, layout, {{.m = 1, .k = kScales * kScaleBlock}}, random);
    for (int32_t i = 0; i < kScales * kScaleBlock / 2; ++i) {
      from.a[static_cast<size_t>(from.parts[0].a + i)] =
          static_cast<uint8_t>(i % 8 * 0x22 + 0x10);  // 0, 1; 2, 3; ...
    }
    ForEachBlock(from, from.parts[0], [&](int64_t, int64_t block, size_t at) {
      from.scales[at] = static_cast<uint8_t>(block);
    });
    ExpectWhatTheHostMakes(from, 2);
    const std::vector<uint16_t> got = OnDevice(from, 2, AtEnd::kScales);
    // 6 * 448, the largest; -6 under a NaN; 0.5 * 2^-9 with bit 7 set, the smallest.
    const auto number = [&](size_t scale, size_t code) {
      return got[kMarginRows * kScales * kScaleBlock + scale * kScaleBlock + code];
    };
    EXPECT_EQ(number(0x7E, 7), EncodeFp16(2688));
    for (size_t code = 0; code < 16; ++code) {
      EXPECT_EQ(number(0x7F, code), 0x7FFF);
      EXPECT_EQ(number(0xFF, code), 0x7FFF);
    }
    EXPECT_EQ(number(0x81, 1), EncodeFp16(0x1p-10f));
  }
}

TEST(PrepareTest, PiecesAndCtas) {
  EXPECT_EQ(PreparePieces(0, 4096), 0);
  EXPECT_EQ(PreparePieces(3, 32), 3);
  EXPECT_EQ(PreparePieces(3, 1024), 3);
  EXPECT_EQ(PreparePieces(3, 1056), 6);
  EXPECT_EQ(PrepareCtas(3, 1056), 2);
}

}  // namespace
}  // namespace tetrad::sm90
