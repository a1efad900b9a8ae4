// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings NVFP4 weights into the form of packed_weights.h and back, on the host and
// on a device of any architecture. Unpacking gives what was packed bit by bit,
// codes under scales of zero included.
//
// Weights are a stack of matrices [n, k] that follow each other without gaps, as in
// DeviceMProblem; a matrix on its own is a stack of one. Scales must be legal
// (neither negative nor NaN). What pads a blocked plane of scales is not read, and
// unpacking makes it zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/nvfp4.h"
#include "kernels/sm90/packed_weights.h"

namespace tetrad::sm90 {

struct WeightsStack {
  int32_t groups = 1;
  int32_t n = 0;
  int32_t k = 0;  // a multiple of 32
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  uint8_t padding[3] = {};
};
static_assert(sizeof(WeightsStack) == 16 && std::is_trivially_copyable_v<WeightsStack>);

// Bytes: groups * CodeBytes(n, k), groups * ScalePlaneBytes(layout, n, k) and
// groups * PackedBytes(n, k). Addresses are multiples of 16, of scales of 2: linear planes of
// other groups may lie before them.
struct PackArguments {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  uint8_t* packed = nullptr;
  WeightsStack weights;
};
struct UnpackArguments {
  const uint8_t* packed = nullptr;
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  WeightsStack weights;
};
static_assert(sizeof(PackArguments) == 40 && sizeof(UnpackArguments) == 40);

// By the host, on this thread.
void PackWeights(const PackArguments& arguments);
void UnpackWeights(const UnpackArguments& arguments);

// tetrad_sm90_pack(PackArguments) and tetrad_sm90_unpack(UnpackArguments), image unit
// "pack": any grid of kPackThreads. A CTA takes a strip's next kPackSteps blocks at a
// time; PackPieces() of them are all there is.
inline constexpr char kPackEntry[] = "tetrad_sm90_pack";
inline constexpr char kUnpackEntry[] = "tetrad_sm90_unpack";
inline constexpr int32_t kPackThreads = 256;
inline constexpr int32_t kPackSteps = 4;

constexpr int64_t PackPieces(const WeightsStack& weights) {
  return weights.groups * CeilDiv(weights.n, kBlockRows) * CeilDiv(weights.k, kPackSteps * kBlockK);
}

}  // namespace tetrad::sm90
