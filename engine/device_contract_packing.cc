// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of packing weights in place: the bytes of the host's packing, whatever scratch
// there is and whatever lies around; blocks that cannot be are refused by name and left as
// they were; nothing is held afterwards.
#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"
#include "engine/packing_batches.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad {
namespace {

using Bytes = std::vector<std::byte>;
using Runs = std::vector<std::array<int32_t, 3>>;  // groups, n and k

constexpr int64_t kMargin = 48;  // before and after memory and scratch
constexpr std::byte kAround{0xC3};
// In linear planes scales then begin at any even byte.
const Runs kMixed = {{1, 5, 32}, {3, 130, 96}, {1, 1, 32}, {2, 128, 320}, {1, 3, 64}};

// Weights of several groups in the memory of a device, and what they are packed.
struct PlacedWeights {
  // `gap`: bytes between codes and scales. `scratch_bytes`: more than the least.
  PlacedWeights(Device& device, const Runs& runs, ScaleLayout layout, int64_t gap,
                int64_t scratch_bytes) {
    Bytes codes, scales, packed;
    for (const auto& [groups, n, k] : runs) {
      const sm90::WeightsStack stack{.groups = groups, .n = n, .k = k, .scale_layout = layout};
      const sm90::SampleWeights drawn = sm90::DrawWeights(stack, dims.size() + 1);
      dims.insert(dims.end(), static_cast<size_t>(groups), GroupDims{n, k});
      Append(drawn.codes, codes);
      Append(drawn.scales, scales);
      Append(sm90::Packed(drawn), packed);
    }
    Append(codes, plain);
    plain.resize(plain.size() + static_cast<size_t>(gap), kAround);
    Append(scales, plain);
    // Behind the packed form there may still be some of the plain one.
    const int64_t bytes = std::max(std::ssize(plain), std::ssize(packed));
    packed_bytes = std::ssize(packed);
    plain.resize(static_cast<size_t>(bytes), kAround);
    image = Surrounded(packed);
    scratch_bytes += PackingBatches(dims, layout).least_scratch_bytes();
    scratch = Surrounded(Bytes(static_cast<size_t>(scratch_bytes), std::byte{0}));
    memory_id = device.Allocate(bytes + 2 * kMargin)->id;
    scratch_id = device.Allocate(std::ssize(scratch))->id;
    request = {.groups = dims,
               .scale_layout = layout,
               .memory = {memory_id, kMargin, bytes},
               .scales = std::ssize(codes) + gap,
               .scratch = {scratch_id, kMargin, scratch_bytes}};
    TETRAD_CHECK(device.Write(memory_id, 0, Surrounded(plain)).ok());
    TETRAD_CHECK(device.Write(scratch_id, 0, scratch).ok());
  }
  PlacedWeights(const PlacedWeights&) = delete;
  template <typename T>
  static void Append(const std::vector<T>& from, Bytes& to) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(from));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  static Bytes Surrounded(const Bytes& bytes) {
    Bytes result(bytes.size() + 2 * kMargin, kAround);
    std::ranges::copy(bytes, result.begin() + kMargin);
    return result;
  }

  std::vector<GroupDims> dims;
  Bytes plain;           // of the memory, before
  Bytes image, scratch;  // of the packed bytes and of scratch, each with what lies around
  int64_t packed_bytes = 0;
  AllocationId memory_id{}, scratch_id{};
  WeightsToPack request;
};

TEST_P(DeviceContract, WeightsPackedInPlaceAreTheHostsToTheByte) {
  constexpr int64_t kAmple = 1 << 20;  // for all of them at once
  const struct {
    const char* what;
    Runs runs;
    int64_t gap, scratch_bytes;
  } cases[] = {
      {"group after group", kMixed, 0, 0},
      {"some groups together", kMixed, 16, 9000},
      {"all groups together", kMixed, 208, kAmple},
      {"one group", {{1, 257, 160}}, 0, 0},
      {"no padding: packed as large as plain", {{5, 128, 64}, {2, 256, 128}}, 0, 0},
      {"the same, and scales behind the packed form", {{5, 128, 64}, {2, 256, 128}}, 4096, 8192},
      {"the largest first", {{1, 300, 512}, {20, 7, 32}, {3, 128, 64}}, 48, 0},
      {"the largest last", {{3, 128, 64}, {20, 7, 32}, {1, 300, 512}}, 48, 0},
      {"many small groups", {{500, 1, 32}, {1, 2, 64}, {300, 3, 32}}, 0, 500},
  };
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    for (const auto& [what, runs, gap, scratch_bytes] : cases) {
      SCOPED_TRACE(absl::StrCat(what, ", scale layout ", static_cast<int>(layout)));
      PlacedWeights weights(device(), runs, layout, gap, scratch_bytes);
      const absl::Status packed = device().PackWeights(weights.request);
      if (device().limits().packs_weights) {
        ASSERT_TRUE(packed.ok()) << packed;
        Bytes memory = Read(weights.memory_id, 0, weights.plain.size() + 2 * kMargin);
        // What the packed form does not reach may be anything.
        memory.erase(memory.begin() + kMargin + weights.packed_bytes, memory.end() - kMargin);
        const auto differs = std::ranges::mismatch(memory, weights.image).in1;
        EXPECT_EQ(differs, memory.end()) << "at packed byte " << differs - memory.begin() - kMargin;
        Bytes scratch = Read(weights.scratch_id, 0, weights.scratch.size());
        std::fill(scratch.begin() + kMargin, scratch.end() - kMargin, std::byte{0});
        EXPECT_EQ(scratch, weights.scratch) << "what lies around scratch was written";
      } else {
        EXPECT_EQ(packed.code(), Code::kFailedPrecondition) << packed;
        EXPECT_EQ(Read(weights.memory_id, kMargin, weights.plain.size()), weights.plain);
      }
      EXPECT_TRUE(device().Seal(weights.memory_id).ok()) << "nothing writes it any more";
      EXPECT_TRUE(device().Free(weights.memory_id).ok()) << "nor holds it";
      EXPECT_TRUE(device().Free(weights.scratch_id).ok());
      EXPECT_EQ(device().memory_use().allocated_bytes, 0);
    }
  }
}

TEST_P(DeviceContract, OfNoGroupsThereIsNothingToPack) {
  const Code want = device().limits().packs_weights ? Code::kOk : Code::kFailedPrecondition;
  EXPECT_EQ(device().PackWeights({}).code(), want);
}

TEST_P(DeviceContract, BlocksThatCannotBePackedAreRefusedByName) {
  if (!device().limits().packs_weights) return;  // it packs nothing, see above
  PlacedWeights weights(device(), kMixed, ScaleLayout::kLinear, 0, 0);
  const Allocation stale = Allocate(1 << 20), sealed = Allocate(1 << 20);
  ASSERT_TRUE(device().Free(stale.id).ok() && device().Seal(sealed.id).ok());
  const auto never = static_cast<AllocationId>(~uint64_t{0});
  const auto expect_refused = [&](const WeightsToPack& request, const char* name, const char* what,
                                  Code code) {
    const absl::Status refused = device().PackWeights(request);
    EXPECT_EQ(refused.code(), code) << name << what << ": " << refused;
    EXPECT_THAT(Text(refused), ::testing::HasSubstr(name)) << what;
  };
  for (const auto& [name, block] :
       {std::pair("weights: ", &WeightsToPack::memory), {"scratch: ", &WeightsToPack::scratch}}) {
    // As large as it has to be, and no larger.
    const BlockRef good = weights.request.*block;
    using Case = std::tuple<const char*, BlockRef, Code>;
    for (const auto& [what, bad, code] :
         {Case{"too small", {good.allocation, good.offset, good.bytes - 1}, Code::kInvalidArgument},
          {"misaligned", {good.allocation, good.offset - 8, good.bytes}, Code::kInvalidArgument},
          {"outside", {good.allocation, 1 << 30, good.bytes}, Code::kInvalidArgument},
          {"foreign", {never, good.offset, good.bytes}, Code::kAborted},
          {"stale", {stale.id, 0, good.bytes}, Code::kAborted},
          {"sealed", {sealed.id, 0, good.bytes}, Code::kFailedPrecondition}}) {
      WeightsToPack request = weights.request;
      request.*block = bad;
      expect_refused(request, name, what, code);
    }
  }
  WeightsToPack request = weights.request;
  for (const auto& [what, scales] : {std::pair("scales in the codes", request.scales - 16),
                                     {"misaligned scales", request.scales + 8},
                                     {"scales outside", int64_t{1} << 30}}) {
    request.scales = scales;
    expect_refused(request, "weights: ", what, Code::kInvalidArgument);
  }
  // In one allocation, by a granule of alignment too near and just beside each other.
  const int64_t scratch_bytes = weights.request.scratch.bytes;
  const int64_t bytes = weights.request.memory.bytes, end = RoundUp(bytes, 16);
  const Allocation both = Allocate(end + scratch_bytes);
  ASSERT_TRUE(device().Write(both.id, 0, weights.plain).ok());
  request = weights.request;
  request.memory = {both.id, 0, bytes};
  request.scratch = {both.id, end - 16, scratch_bytes};
  expect_refused(request, "scratch: ", "in the weights", Code::kInvalidArgument);
  EXPECT_EQ(Read(both.id, 0, weights.plain.size()), weights.plain);
  request.scratch.offset = end;
  EXPECT_TRUE(device().PackWeights(request).ok());

  EXPECT_EQ(Read(weights.memory_id, kMargin, weights.plain.size()), weights.plain);
  EXPECT_EQ(Read(weights.scratch_id, 0, weights.scratch.size()), weights.scratch);
  for (const AllocationId id : {weights.memory_id, weights.scratch_id, sealed.id, both.id}) {
    EXPECT_TRUE(device().Free(id).ok()) << "a refused call holds nothing";
  }
}

}  // namespace
}  // namespace tetrad
