// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/tensor_maps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tetrad::cuda::simulated {
namespace {

constexpr uint64_t kMagic = 0x9D1C'7E57'A0B3'44EF;

// TensorMapSpec in fewer bytes.
struct Encoded {
  uint64_t magic = kMagic;
  uint64_t address = 0;
  std::array<uint64_t, kTensorMapRank> dims{};
  std::array<uint64_t, kTensorMapRank - 1> strides{};
  std::array<uint32_t, kTensorMapRank> box{};
  std::array<uint8_t, kTensorMapRank> element_strides{};
  uint8_t rank = 0;
  uint8_t type = 0;
  uint8_t interleave = 0;
  uint8_t swizzle = 0;
  uint8_t l2_promotion = 0;
  uint8_t oob_fill = 0;
  std::array<uint8_t, 9> padding{};
};

}  // namespace

CUtensorMap EncodeMap(const TensorMapSpec& spec) {
  Encoded encoded;
  encoded.address = spec.address;
  encoded.dims = spec.dims;
  encoded.strides = spec.strides;
  encoded.box = spec.box;
  for (size_t i = 0; i < kTensorMapRank; ++i) {
    encoded.element_strides[i] = static_cast<uint8_t>(spec.element_strides[i]);
  }
  encoded.rank = static_cast<uint8_t>(spec.rank);
  encoded.type = static_cast<uint8_t>(spec.type);
  encoded.interleave = static_cast<uint8_t>(spec.interleave);
  encoded.swizzle = static_cast<uint8_t>(spec.swizzle);
  encoded.l2_promotion = static_cast<uint8_t>(spec.l2_promotion);
  encoded.oob_fill = static_cast<uint8_t>(spec.oob_fill);
  return std::bit_cast<CUtensorMap>(encoded);
}

std::optional<TensorMapSpec> DecodeMap(const CUtensorMap& map) {
  const auto encoded = std::bit_cast<Encoded>(map);
  if (encoded.magic != kMagic) return std::nullopt;
  TensorMapSpec spec;
  spec.type = static_cast<CUtensorMapDataType>(encoded.type);
  spec.rank = encoded.rank;
  spec.address = encoded.address;
  spec.dims = encoded.dims;
  spec.strides = encoded.strides;
  spec.box = encoded.box;
  std::copy(encoded.element_strides.begin(), encoded.element_strides.end(),
            spec.element_strides.begin());
  spec.interleave = static_cast<CUtensorMapInterleave>(encoded.interleave);
  spec.swizzle = static_cast<CUtensorMapSwizzle>(encoded.swizzle);
  spec.l2_promotion = static_cast<CUtensorMapL2promotion>(encoded.l2_promotion);
  spec.oob_fill = static_cast<CUtensorMapFloatOOBfill>(encoded.oob_fill);
  return spec;
}

}  // namespace tetrad::cuda::simulated
