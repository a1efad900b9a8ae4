// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensor maps: what the copy engine of sm_90 and later needs to fetch a box of
// a tensor, checked by our own rules before the driver encodes it.
//
// Dimension 0 is the innermost and dense. Sizes are elements, strides bytes.
// The rules are checked without a device, and a message says which of them was
// broken: the driver itself only says "invalid value". They are the same for every
// device: which types and swizzles its copy engine has is for who chooses the kernel.
//
//   documented  for cuTensorMapEncodeTiled: all that are not named below
//   observed    with driver 580 on capability 9.0, where the documentation is silent:
//               - a box takes at most kMaxBoxBytes; the driver counts
//                 floor(box / element stride) elements a dimension
//               - a load's coordinate in dimension 0 is a multiple of 16 bytes, or
//                 the load is an illegal instruction; not of the map, so it is for
//                 who loads, and not checked here
//   ours        the driver encodes what breaks them:
//               - the address is not null; a stride contains the dimension before it
//                 and is a multiple of the stride before it; interleave 32B has
//                 swizzle 32B (documented, not held)
//               - box[i] is a multiple of element_strides[i]: else the driver's floor
//                 and the documented ceil of what is loaded differ
//
// Free functions over plain values. INVALID_ARGUMENT names field, value and
// limit, e.g. "tensor map: box[0]=257 must be 1 to 256".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/driver.h"

namespace tetrad::cuda {

inline constexpr size_t kTensorMapRank = 5;  // the highest
// The shared memory of an SM of capability 9.0, 1 KiB more than a CTA gets of it.
inline constexpr uint64_t kMaxBoxBytes = 228 << 10;

// Equality and hash are over every member, entries from `rank` on included,
// which nobody reads: leave them as they are here.
struct TensorMapSpec {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  uint32_t rank = 1;
  uint64_t address = 0;  // of the device
  std::array<uint64_t, kTensorMapRank> dims{};
  std::array<uint64_t, kTensorMapRank - 1> strides{};  // [i]: of dimension i + 1
  std::array<uint32_t, kTensorMapRank> box{};
  std::array<uint32_t, kTensorMapRank> element_strides{1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
  CUtensorMapFloatOOBfill oob_fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  bool operator==(const TensorMapSpec&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorMapSpec& s) {
    return H::combine(std::move(h), s.type, s.rank, s.address, s.dims, s.strides, s.box,
                      s.element_strides, s.interleave, s.swizzle, s.l2_promotion, s.oob_fill);
  }
};

absl::Status CheckTensorMap(const TensorMapSpec& spec);

// Bytes that one load of the box writes to shared memory, elements beyond the
// tensor included; what a barrier has to expect. `spec` passes CheckTensorMap().
uint64_t BoxBytes(const TensorMapSpec& spec);

// The fields that are read, by name, for messages. Of enumerators only.
std::string DescribeTensorMap(const TensorMapSpec& spec);

// The driver's encoding of what passes CheckTensorMap(), and what the driver says.
CUresult EncodeChecked(const CudaDriver& driver, const TensorMapSpec& spec, CUtensorMap& map);

// CheckTensorMap(), then the driver's encoding. INTERNAL if the driver refuses
// what the check allows: then the rules here are wrong.
absl::StatusOr<CUtensorMap> EncodeTensorMap(const CudaDriver& driver, const TensorMapSpec& spec);

}  // namespace tetrad::cuda
