// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of packing weights: the bytes of the host's packing, whatever lies
// around them; blocks that cannot be are refused by name; nothing is held afterwards.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/pack_sample.h"

namespace tetrad {
namespace {

constexpr int64_t kMargin = 48;  // before and after the packed bytes
const std::vector<std::byte> kAround(kMargin, std::byte{0xC3});
// Groups, n and k; in linear planes scales then begin at any even byte.
constexpr int32_t kRuns[][3] = {{1, 5, 32}, {3, 130, 96}, {1, 1, 32}, {2, 128, 320}, {1, 3, 64}};

// Weights of several groups in the memory of a device, and what they are packed.
struct PlacedWeights {
  PlacedWeights(Device& device, ScaleLayout layout) {
    for (const auto& [groups, n, k] : kRuns) {
      const sm90::WeightsStack stack{.groups = groups, .n = n, .k = k, .scale_layout = layout};
      const sm90::SampleWeights drawn = sm90::DrawWeights(stack, dims.size() + 1);
      dims.insert(dims.end(), static_cast<size_t>(groups), GroupDims{n, k});
      Append(drawn.codes, codes);
      Append(drawn.scales, scales);
      Append(sm90::Packed(drawn), image);
    }
    image.insert(image.end(), kAround.begin(), kAround.end());
    const auto code_bytes = std::ssize(codes), scale_bytes = std::ssize(scales);
    plain = *device.Allocate(code_bytes + scale_bytes + 32);
    target = *device.Allocate(std::ssize(image));
    request = {.groups = dims,
               .scale_layout = layout,
               .codes = {plain.id, 16, code_bytes},
               .scales = {plain.id, code_bytes + 32, scale_bytes},
               .packed = {target.id, kMargin, PackedWeightBytes(dims)}};
    TETRAD_CHECK(device.Write(plain.id, request.codes.offset, codes).ok());
    TETRAD_CHECK(device.Write(plain.id, request.scales.offset, scales).ok());
    TETRAD_CHECK(device.Write(target.id, 0, Untouched()).ok());
  }
  PlacedWeights(const PlacedWeights&) = delete;
  static void Append(const std::vector<uint8_t>& from, std::vector<std::byte>& to) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(from));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> Untouched() const { return std::vector(image.size(), kAround[0]); }

  std::vector<GroupDims> dims;
  std::vector<std::byte> codes, scales;
  std::vector<std::byte> image = kAround;  // of `target`, once it is packed
  Allocation plain, target;
  WeightsToPack request;
};

TEST_P(DeviceContract, PackedWeightsAreTheHostsToTheByte) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    SCOPED_TRACE(absl::StrCat("scale layout ", static_cast<int>(layout)));
    PlacedWeights weights(device(), layout);
    ASSERT_TRUE(device().Seal(weights.plain.id).ok()) << "what is only read may be sealed";
    const absl::Status packed = device().PackWeights(weights.request);
    if (device().limits().packs_weights) {
      ASSERT_TRUE(packed.ok()) << packed;
      const std::vector<std::byte> image = Read(weights.target.id, 0, weights.image.size());
      const auto differs = std::mismatch(image.begin(), image.end(), weights.image.begin()).first;
      EXPECT_EQ(differs, image.end()) << "at packed byte " << differs - image.begin() - kMargin;
    } else {
      EXPECT_EQ(packed.code(), Code::kFailedPrecondition) << packed;
    }
    EXPECT_TRUE(device().Seal(weights.target.id).ok()) << "nothing writes it any more";
    EXPECT_TRUE(device().Free(weights.target.id).ok()) << "nor holds it";
    EXPECT_TRUE(device().Free(weights.plain.id).ok());
    EXPECT_EQ(device().memory_use().allocated_bytes, 0);
  }
}

TEST_P(DeviceContract, BlocksThatCannotBePackedAreRefusedByName) {
  if (!device().limits().packs_weights) return;  // it packs nothing, see above
  PlacedWeights weights(device(), ScaleLayout::kLinear);
  const Allocation stale = Allocate(1 << 20), sealed = Allocate(1 << 20);
  ASSERT_TRUE(device().Free(stale.id).ok() && device().Seal(sealed.id).ok());
  const auto never = static_cast<AllocationId>(~uint64_t{0});
  for (const auto& [name, block] : {std::pair("weights codes: ", &WeightsToPack::codes),
                                    {"weights scales: ", &WeightsToPack::scales},
                                    {"packed weights: ", &WeightsToPack::packed}}) {
    const BlockRef good = weights.request.*block;
    using Case = std::tuple<const char*, BlockRef, Code>;
    for (const auto& [what, bad, code] :
         {Case{"too small", {good.allocation, good.offset, good.bytes - 1}, Code::kInvalidArgument},
          {"misaligned", {good.allocation, good.offset - 8, good.bytes}, Code::kInvalidArgument},
          {"outside", {good.allocation, 1 << 30, good.bytes}, Code::kInvalidArgument},
          {"foreign", {never, good.offset, good.bytes}, Code::kAborted},
          {"stale", {stale.id, 0, good.bytes}, Code::kAborted},
          {"sealed", {sealed.id, 0, good.bytes}, Code::kFailedPrecondition}}) {
      if (bad.allocation == sealed.id && block != &WeightsToPack::packed) continue;
      WeightsToPack request = weights.request;
      request.*block = bad;
      const absl::Status refused = device().PackWeights(request);
      EXPECT_EQ(refused.code(), code) << name << what << ": " << refused;
      EXPECT_THAT(Text(refused), ::testing::HasSubstr(name)) << what;
    }
  }
  EXPECT_EQ(Read(weights.target.id, 0, weights.image.size()), weights.Untouched());
  for (const AllocationId id : {weights.plain.id, weights.target.id, sealed.id}) {
    EXPECT_TRUE(device().Free(id).ok()) << "a refused call holds nothing";
  }
}

}  // namespace
}  // namespace tetrad
