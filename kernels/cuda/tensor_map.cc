// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map.h"

#include <bit>
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tetrad::cuda {
namespace {

struct ElementType {
  uint32_t bits;         // in the tensor
  uint32_t shared_bits;  // in shared memory, gaps included
  bool floating;         // may be filled with NaN
};
// In the order of CUtensorMapDataType.
constexpr ElementType kTypes[] = {
    {8, 8, false},   {16, 16, false}, {32, 32, false}, {32, 32, false},
    {64, 64, false}, {64, 64, false}, {16, 16, true},  {32, 32, true},
    {64, 64, true},  {16, 16, true},  {32, 32, true},  {32, 32, true},
    {32, 32, true},  {4, 4, false},   {4, 8, false},   {6, 8, false},
};
static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6 && CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ == 12 &&
              CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B + 1 == std::size(kTypes));

constexpr uint64_t kMaxDim = uint64_t{1} << 32;
constexpr uint64_t kStrideLimit = uint64_t{1} << 40;
constexpr uint32_t kMaxBox = 256;
constexpr uint32_t kMaxElementStride = 8;
constexpr uint32_t kChunkBytes = 16;       // what addresses, strides and boxes are multiples of
constexpr uint32_t kPackedElements = 128;  // of dims[0] and box[0] of types with gaps

const ElementType& TypeOf(const TensorMapSpec& spec) { return kTypes[spec.type]; }
bool HasGaps(const TensorMapSpec& spec) { return TypeOf(spec).shared_bits > TypeOf(spec).bits; }
bool Interleaved(const TensorMapSpec& spec) {
  return spec.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
}

// The engine has no stride inside dimension 0 unless it is interleaved.
uint32_t ElementStride(const TensorMapSpec& spec, size_t i) {
  return i == 0 && !Interleaved(spec) ? 1 : spec.element_strides[i];
}

// Of address and strides.
uint64_t Alignment(const TensorMapSpec& spec) {
  return HasGaps(spec) || spec.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : kChunkBytes;
}
const char* AlignmentReason(const TensorMapSpec& spec) {
  if (HasGaps(spec)) return " with types of 16-byte alignment";
  return spec.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? " with interleave 32B" : "";
}

uint32_t SwizzleBytes(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    default:
      return 128;
  }
}

template <typename... Rule>
absl::Status Refuse(absl::string_view field, uint64_t value, const Rule&... rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor map: ", field, "=", value, " must be ", rule...));
}

std::string At(absl::string_view field, size_t index) {
  return absl::StrCat(field, "[", index, "]");
}

// Of what may be no enumerator, which to read as one is undefined.
template <typename Enumeration>
uint32_t Number(const Enumeration& value) {
  uint32_t number;
  static_assert(sizeof(number) == sizeof(value));
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

absl::Status CheckEnumerators(const TensorMapSpec& spec) {
  const struct {
    const char* field;
    uint64_t value, last;
  } rows[] = {
      {"type", Number(spec.type), std::size(kTypes) - 1},
      {"interleave", Number(spec.interleave), CU_TENSOR_MAP_INTERLEAVE_32B},
      {"swizzle", Number(spec.swizzle), CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B},
      {"l2_promotion", Number(spec.l2_promotion), CU_TENSOR_MAP_L2_PROMOTION_L2_256B},
      {"oob_fill", Number(spec.oob_fill), CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA},
  };
  for (const auto& row : rows) {
    if (row.value > row.last) return Refuse(row.field, row.value, "0 to ", row.last);
  }
  return absl::OkStatus();
}

// Which kinds go together.
absl::Status CheckKinds(const TensorMapSpec& spec) {
  if (spec.rank < 1 || spec.rank > kTensorMapRank) {
    return Refuse("rank", spec.rank, "1 to ", kTensorMapRank);
  }
  if (Interleaved(spec) && spec.rank < 3) {
    return Refuse("rank", spec.rank, "3 to ", kTensorMapRank, " with interleave");
  }
  const bool six_bits = spec.type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
  if (six_bits && Interleaved(spec)) {
    return Refuse("interleave", spec.interleave, "0 (none) with type 16U6_ALIGN16B");
  }
  if (spec.interleave == CU_TENSOR_MAP_INTERLEAVE_32B &&
      spec.swizzle != CU_TENSOR_MAP_SWIZZLE_32B) {
    return Refuse("swizzle", spec.swizzle, CU_TENSOR_MAP_SWIZZLE_32B, " (32B) with interleave 32B");
  }
  const bool allowed_with_gaps = spec.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ||
                                 spec.swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
                                 spec.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
                                 (six_bits && spec.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
  if (HasGaps(spec) && !allowed_with_gaps) {
    return Refuse("swizzle", spec.swizzle, "none, 128B",
                  six_bits ? ", 128B_ATOM_32B or 128B_ATOM_64B" : " or 128B_ATOM_32B",
                  " with types of 16-byte alignment");
  }
  if (spec.oob_fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !TypeOf(spec).floating) {
    return Refuse("oob_fill", spec.oob_fill, "0 (zeros) with types that are not floating-point");
  }
  return absl::OkStatus();
}

absl::Status CheckDims(const TensorMapSpec& spec) {
  for (size_t i = 0; i < spec.rank; ++i) {
    if (spec.dims[i] < 1 || spec.dims[i] > kMaxDim) {
      return Refuse(At("dims", i), spec.dims[i], "1 to ", kMaxDim);
    }
  }
  const uint64_t granule = HasGaps(spec) ? kPackedElements : TypeOf(spec).bits < 8 ? 2 : 1;
  if (spec.dims[0] % granule != 0) {
    return Refuse("dims[0]", spec.dims[0], "a multiple of ", granule, " with packed types");
  }
  return absl::OkStatus();
}

absl::Status CheckAddresses(const TensorMapSpec& spec) {
  const uint64_t alignment = Alignment(spec);
  if (spec.address == 0 || spec.address % alignment != 0) {
    return Refuse("address", spec.address, "a multiple of ", alignment, AlignmentReason(spec),
                  " and not 0");
  }
  // What one stride has to step over, and what it is a multiple of. Rows are
  // whole bytes: those of packed types have an even number of elements.
  uint64_t within = spec.dims[0] * TypeOf(spec).bits / 8;
  uint64_t step = alignment;
  for (size_t i = 0; i + 1 < spec.rank; ++i) {
    const uint64_t stride = spec.strides[i];
    if (stride % alignment != 0) {
      return Refuse(At("strides", i), stride, "a multiple of ", alignment, AlignmentReason(spec));
    }
    if (stride >= kStrideLimit) return Refuse(At("strides", i), stride, "below ", kStrideLimit);
    if (stride < within) {
      return Refuse(At("strides", i), stride, "at least ", within, ", the extent of dimension ", i);
    }
    if (stride % step != 0) {
      return Refuse(At("strides", i), stride, "a multiple of ", step, ", the stride before it");
    }
    step = stride;
    // Below 2^72; of the last dimension nothing has to be stepped over.
    within = spec.dims[i + 1] > UINT64_MAX / stride ? UINT64_MAX : stride * spec.dims[i + 1];
  }
  return absl::OkStatus();
}

absl::Status CheckBox(const TensorMapSpec& spec) {
  for (size_t i = 0; i < spec.rank; ++i) {
    if (spec.box[i] < 1 || spec.box[i] > kMaxBox) {
      return Refuse(At("box", i), spec.box[i], "1 to ", kMaxBox);
    }
    if (spec.element_strides[i] < 1 || spec.element_strides[i] > kMaxElementStride) {
      return Refuse(At("element_strides", i), spec.element_strides[i], "1 to ", kMaxElementStride);
    }
    if (spec.box[i] % ElementStride(spec, i) != 0) {
      return Refuse(At("box", i), spec.box[i], "a multiple of ", spec.element_strides[i],
                    ", its element stride");
    }
  }
  if (HasGaps(spec) && spec.box[0] != kPackedElements) {
    return Refuse("box[0]", spec.box[0], kPackedElements, " with types of 16-byte alignment");
  }
  return absl::OkStatus();
}

absl::Status CheckRowOfBox(const TensorMapSpec& spec) {
  if (Interleaved(spec)) return absl::OkStatus();
  const uint32_t bits = spec.box[0] * TypeOf(spec).shared_bits;
  if (bits % (8 * kChunkBytes) != 0) {
    return Refuse("box[0]", spec.box[0], "a multiple of ", kChunkBytes, " bytes, that is of ",
                  8 * kChunkBytes / TypeOf(spec).shared_bits, " elements");
  }
  const uint32_t span = SwizzleBytes(spec.swizzle);
  if (span != 0 && bits / 8 > span) {
    return Refuse("box[0]", spec.box[0], "at most ", span,
                  " bytes, the span of the swizzle, that is ", 8 * span / TypeOf(spec).shared_bits,
                  " elements");
  }
  return absl::OkStatus();
}

absl::Status CheckBoxBytes(const TensorMapSpec& spec) {
  const uint64_t bytes = BoxBytes(spec);
  if (bytes > kMaxBoxBytes) return Refuse("box bytes", bytes, "at most ", kMaxBoxBytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTensorMap(const TensorMapSpec& spec) {
  for (const auto check : {CheckEnumerators, CheckKinds, CheckDims, CheckAddresses, CheckBox,
                           CheckRowOfBox, CheckBoxBytes}) {
    if (absl::Status status = check(spec); !status.ok()) return status;
  }
  return absl::OkStatus();
}

uint64_t BoxBytes(const TensorMapSpec& spec) {
  uint64_t bits = TypeOf(spec).shared_bits;
  for (size_t i = 0; i < spec.rank; ++i) bits *= spec.box[i] / ElementStride(spec, i);
  return bits / 8;
}

std::string DescribeTensorMap(const TensorMapSpec& s) {
  const auto list = [&s](const auto& values, size_t fewer) {
    return absl::StrJoin(std::span(values).first(s.rank - fewer), ",");
  };
  return absl::StrCat("type=", s.type, " address=", s.address, " dims=", list(s.dims, 0),
                      " strides=", list(s.strides, 1), " box=", list(s.box, 0),
                      " element_strides=", list(s.element_strides, 0), " interleave=", s.interleave,
                      " swizzle=", s.swizzle, " l2_promotion=", s.l2_promotion,
                      " oob_fill=", s.oob_fill);
}

CUresult EncodeChecked(const CudaDriver& driver, const TensorMapSpec& spec, CUtensorMap& map) {
  return driver.TensorMapEncodeTiled(&map, spec.type, spec.rank, std::bit_cast<void*>(spec.address),
                                     spec.dims.data(), spec.strides.data(), spec.box.data(),
                                     spec.element_strides.data(), spec.interleave, spec.swizzle,
                                     spec.l2_promotion, spec.oob_fill);
}

absl::StatusOr<CUtensorMap> EncodeTensorMap(const CudaDriver& driver, const TensorMapSpec& spec) {
  if (absl::Status status = CheckTensorMap(spec); !status.ok()) return status;
  CUtensorMap map;
  const CUresult result = EncodeChecked(driver, spec, map);
  if (result == CUDA_SUCCESS) return map;
  if (result == CUDA_ERROR_INVALID_VALUE) {
    return absl::InternalError(
        absl::StrCat("cuTensorMapEncodeTiled: the driver refuses what our rules allow: ",
                     DescribeTensorMap(spec)));
  }
  return absl::InternalError(
      absl::StrCat("cuTensorMapEncodeTiled: error ", static_cast<int>(result)));
}

}  // namespace tetrad::cuda
