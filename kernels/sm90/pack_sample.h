// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Weights for the tests of packing: any codes, any legal scales (many zero), junk in
// what pads a blocked plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/random.h"
#include "kernels/sm90/pack.h"

namespace tetrad::sm90 {

struct SampleWeights {
  WeightsStack stack;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// Of the right sizes, every byte 0xA5.
inline SampleWeights EmptyWeights(const WeightsStack& stack) {
  const auto bytes = [&](int64_t of_group) { return static_cast<size_t>(stack.groups * of_group); };
  constexpr uint8_t kStale = 0xA5;
  return {
      stack, std::vector<uint8_t>(bytes(CodeBytes(stack.n, stack.k)), kStale),
      std::vector<uint8_t>(bytes(ScalePlaneBytes(stack.scale_layout, stack.n, stack.k)), kStale)};
}

// Calls `scale` for the byte of every scale that means something.
template <class Scale>
void ForEachScale(const WeightsStack& stack, const Scale& scale) {
  const int64_t plane = ScalePlaneBytes(stack.scale_layout, stack.n, stack.k);
  for (int64_t group = 0; group < stack.groups; ++group) {
    for (int64_t row = 0; row < stack.n; ++row) {
      for (int64_t block = 0; block < stack.k / kScaleBlock; ++block) {
        scale(static_cast<size_t>(group * plane +
                                  ScaleOffset(stack.scale_layout, row, block, stack.k)));
      }
    }
  }
}

inline SampleWeights DrawWeights(const WeightsStack& stack, uint64_t seed) {
  Random random(seed);
  SampleWeights weights = EmptyWeights(stack);
  for (uint8_t& byte : weights.codes) byte = static_cast<uint8_t>(random.Next() >> 32);
  for (uint8_t& byte : weights.scales) byte = static_cast<uint8_t>(random.Next() >> 32 | 0x80);
  ForEachScale(stack, [&](size_t at) {
    weights.scales[at] = random.OneIn(8) ? 0 : static_cast<uint8_t>(random.Below(kUe4m3Nan));
  });
  return weights;
}

// The same with zeros in the padding.
inline SampleWeights WithoutJunk(const SampleWeights& weights) {
  SampleWeights result = weights;
  std::vector<uint8_t> scales(weights.scales.size());
  ForEachScale(weights.stack, [&](size_t at) { scales[at] = weights.scales[at]; });
  result.scales = scales;
  return result;
}

inline std::vector<uint8_t> Packed(const SampleWeights& from) {
  const WeightsStack& stack = from.stack;
  std::vector<uint8_t> packed(static_cast<size_t>(stack.groups * PackedBytes(stack.n, stack.k)),
                              0xA5);
  PackWeights({from.codes.data(), from.scales.data(), packed.data(), stack});
  return packed;
}

inline SampleWeights Unpacked(const WeightsStack& stack, const std::vector<uint8_t>& packed) {
  SampleWeights weights = EmptyWeights(stack);
  UnpackWeights({packed.data(), weights.codes.data(), weights.scales.data(), stack});
  return weights;
}

}  // namespace tetrad::sm90
