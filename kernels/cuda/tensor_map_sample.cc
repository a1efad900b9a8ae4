// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map_sample.h"

#include <algorithm>

namespace tetrad::cuda {
namespace {

constexpr uint64_t kStrideLimit = uint64_t{1} << 40;
constexpr uint64_t kMaxDim = uint64_t{1} << 32;
constexpr uint32_t kSharedBytes = 233472;

bool SixteenByteType(CUtensorMapDataType type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B ||
         type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}
bool PackedType(CUtensorMapDataType type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B || SixteenByteType(type);
}
bool FloatType(CUtensorMapDataType type) {
  return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

// Of an element in the tensor.
uint32_t Bits(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
      return 6;
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 64;
    default:
      return 32;
  }
}

uint64_t Alignment(const TensorMapSpec& spec) {
  return SixteenByteType(spec.type) || spec.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
}

uint64_t Granule(CUtensorMapDataType type) {
  return SixteenByteType(type) ? 128 : PackedType(type) ? 2 : 1;
}

uint64_t RoundUp(uint64_t value, uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

// From 1 to `most`, small and large ones alike.
uint64_t AnySize(Random& random, uint64_t most) {
  const uint64_t bound = std::min(most, uint64_t{1} << random.Below(33));
  return 1 + random.Next() % bound;
}

CUtensorMapSwizzle AnySwizzle(Random& random, TensorMapKinds kinds, CUtensorMapDataType type) {
  if (SixteenByteType(type)) {
    constexpr CUtensorMapSwizzle kAllowed[] = {CU_TENSOR_MAP_SWIZZLE_NONE,
                                               CU_TENSOR_MAP_SWIZZLE_128B,
                                               CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B};
    return kAllowed[random.Below(3)];
  }
  return static_cast<CUtensorMapSwizzle>(random.Below(kinds == TensorMapKinds::kAll ? 7 : 4));
}

uint32_t Span(CUtensorMapSwizzle swizzle) {
  return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE  ? 1 << 20
         : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
         : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                : 128;
}

void SampleBox(Random& random, TensorMapSpec& spec) {
  const uint32_t chunk = 128 / Bits(spec.type);  // elements of 16 bytes
  if (SixteenByteType(spec.type)) {
    spec.box[0] = 128;
  } else if (spec.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
    spec.box[0] = spec.interleave == CU_TENSOR_MAP_INTERLEAVE_16B ? chunk : 2 * chunk;
  } else {
    spec.box[0] = chunk * (1 + random.Below(std::min(256 / chunk, Span(spec.swizzle) / 16)));
  }
  // Each element of the types with gaps has a byte of shared memory.
  const uint32_t row = SixteenByteType(spec.type) ? 128 : spec.box[0] * Bits(spec.type) / 8;
  uint32_t rows = kSharedBytes / row;
  for (uint32_t i = 1; i < spec.rank; ++i) {
    if (random.OneIn(4)) spec.element_strides[i] = 1 + random.Below(8);
    const uint32_t step = spec.element_strides[i];
    const auto loaded = static_cast<uint32_t>(AnySize(random, std::min(256 / step, rows)));
    spec.box[i] = step * loaded;
    rows /= loaded;
  }
}

// As few bytes as the type allows, so that a box with one large side is still small.
void ShrinkBox(TensorMapSpec& spec) {
  spec.box = {SixteenByteType(spec.type) ? 128 : 128 / Bits(spec.type), 1, 1, 1, 1};
  spec.element_strides = {1, 1, 1, 1, 1};
}

void SampleTensor(Random& random, TensorMapSpec& spec) {
  const uint64_t alignment = Alignment(spec);
  const uint64_t granule = Granule(spec.type);
  spec.address = alignment * (1 + random.Next() % (uint64_t{1} << 40));
  spec.dims[0] = RoundUp(AnySize(random, kMaxDim - granule), granule);
  uint64_t stride = RoundUp(spec.dims[0] * Bits(spec.type) / 8, alignment);
  if (random.OneIn(2)) stride += alignment * random.Below(64);
  for (uint32_t i = 1; i < spec.rank; ++i) {
    spec.strides[i - 1] = stride;
    const uint64_t most = i + 1 == spec.rank ? kMaxDim : (kStrideLimit - 1) / stride;
    spec.dims[i] = AnySize(random, std::min(kMaxDim, most));
    if (i + 1 == spec.rank) break;
    stride *= std::min(most, spec.dims[i] + (random.OneIn(2) ? random.Below(64) : 0));
  }
}

// The rules. Each returns false where it does not apply.
using Spec = TensorMapSpec;

bool Plain(const Spec& s) { return s.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE; }

constexpr TensorMapFault kFaults[] = {
    {"type: an enumerator", "type",
     [](Spec& s, Random&) {
       s.type = static_cast<CUtensorMapDataType>(16);
       return true;
     }},
    {"rank: at least 1", "rank",
     [](Spec& s, Random&) {
       s.rank = 0;
       return true;
     }},
    {"rank: at most 5", "rank",
     [](Spec& s, Random&) {
       s.rank = 6;
       return true;
     }},
    {"rank: at least 3 with interleave", "rank",
     [](Spec& s, Random& r) {
       if (Plain(s)) return false;
       s.rank = 1 + r.Below(2);
       return true;
     }},
    {"address: not null", "address",
     [](Spec& s, Random&) {
       s.address = 0;
       return true;
     }},
    {"address: a multiple of 16", "address",
     [](Spec& s, Random& r) {
       s.address += 1 + r.Below(15);
       return true;
     }},
    {"address: a multiple of 32", "address",
     [](Spec& s, Random&) {
       if (Alignment(s) != 32) return false;
       s.address += 16;
       return true;
     }},
    {"dims: not 0", "dims",
     [](Spec& s, Random& r) {
       s.dims[r.Below(s.rank)] = 0;
       return true;
     }},
    {"dims: at most 2^32", "dims",
     [](Spec& s, Random&) {
       const uint32_t last = s.rank - 1;
       s.dims[last] = kMaxDim + (last == 0 ? Granule(s.type) : 1);
       return true;
     }},
    {"dims[0]: a multiple with packed types", "dims[0]",
     [](Spec& s, Random& r) {
       if (!PackedType(s.type)) return false;
       s.dims[0] -= 1 + r.Below(static_cast<uint32_t>(Granule(s.type)) - 1);
       return true;
     }},
    {"strides: a multiple of 16", "strides",
     [](Spec& s, Random&) {
       s.strides[0] += 8;
       return s.rank == 2;
     }},
    {"strides: a multiple of 32", "strides[0]",
     [](Spec& s, Random&) {
       if (Alignment(s) != 32 || s.rank < 2 || s.rank > 3) return false;
       s.strides[0] += 16;
       // An even multiple of an odd one keeps to the rules of its own.
       s.strides[1] = s.rank == 3 ? s.strides[0] * RoundUp(s.dims[1], 2) : 0;
       return s.strides[1] < kStrideLimit;
     }},
    {"strides: below 2^40", "strides",
     [](Spec& s, Random&) {
       s.strides[0] = kStrideLimit;
       return s.rank == 2;
     }},
    {"strides: contain a row", "strides[0]",
     [](Spec& s, Random&) {
       const uint64_t row = s.dims[0] * Bits(s.type) / 8;
       if (s.rank != 2 || row <= Alignment(s)) return false;
       s.strides[0] = RoundUp(row, Alignment(s)) - Alignment(s);
       return true;
     }},
    {"strides: contain the dimension before", "strides[1]",
     [](Spec& s, Random&) {
       if (s.rank != 3 || s.dims[1] < 2) return false;
       s.strides[1] = s.strides[0] * (s.dims[1] - 1);
       return true;
     }},
    {"strides: multiples of the one before", "strides[1]",
     [](Spec& s, Random&) {
       if (s.rank != 3 || s.strides[0] == Alignment(s)) return false;
       if (s.strides[1] + Alignment(s) >= kStrideLimit) return false;
       s.strides[1] += Alignment(s);
       return true;
     }},
    {"box: not 0", "box",
     [](Spec& s, Random& r) {
       s.box[r.Below(s.rank)] = 0;
       return true;
     }},
    {"box: at most 256", "box",
     [](Spec& s, Random&) {
       if (s.rank < 2) return false;
       ShrinkBox(s);
       s.box[s.rank - 1] = 257;
       return true;
     }},
    {"box: at most 228 KiB", "box bytes",
     [](Spec& s, Random& r) {
       if (s.rank < 3) return false;
       ShrinkBox(s);
       // At least 16 bytes, 114 and 129 times.
       const uint32_t step = 1 + r.Below(2);
       s.element_strides[1] = step;
       s.box[1] = 114 * step;
       s.box[2] = 129 + r.Below(128);
       return true;
     }},
    {"box: a multiple of its element stride", "box",
     [](Spec& s, Random& r) {
       if (s.rank < 2) return false;
       ShrinkBox(s);
       s.element_strides[s.rank - 1] = 2 + r.Below(7);
       s.box[s.rank - 1] = s.element_strides[s.rank - 1] + 1;
       return true;
     }},
    {"box[0]: a multiple of 16 bytes", "box[0]",
     [](Spec& s, Random&) {
       if (!Plain(s) || SixteenByteType(s.type)) return false;
       s.box[0] -= 1;
       return true;
     }},
    {"box[0]: 128 with types of 16-byte alignment", "box[0]",
     [](Spec& s, Random&) {
       if (!SixteenByteType(s.type)) return false;
       // Less than the span of a swizzle, and a multiple of 16 bytes packed, too.
       s.box[0] = 64;
       return true;
     }},
    {"box[0]: at most the span of the swizzle", "box[0]",
     [](Spec& s, Random&) {
       const uint32_t elements = 8 * (Span(s.swizzle) + 16) / Bits(s.type);
       if (!Plain(s) || SixteenByteType(s.type) || elements > 256) return false;
       ShrinkBox(s);
       s.box[0] = elements;
       return true;
     }},
    {"element_strides: not 0", "element_strides",
     [](Spec& s, Random&) {
       if (s.rank < 2) return false;
       s.element_strides[s.rank - 1] = 0;
       return true;
     }},
    {"element_strides: at most 8", "element_strides",
     [](Spec& s, Random&) {
       if (s.rank < 2) return false;
       s.element_strides[s.rank - 1] = 9;
       return true;
     }},
    {"interleave: an enumerator", "interleave",
     [](Spec& s, Random&) {
       s.interleave = static_cast<CUtensorMapInterleave>(3);
       return s.rank >= 3;
     }},
    {"interleave: none with 6 bits", "interleave",
     [](Spec& s, Random&) {
       if (s.type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || s.rank < 3) return false;
       s.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
       return true;
     }},
    {"swizzle: an enumerator", "swizzle",
     [](Spec& s, Random&) {
       if (s.interleave == CU_TENSOR_MAP_INTERLEAVE_32B || SixteenByteType(s.type)) return false;
       s.swizzle = static_cast<CUtensorMapSwizzle>(7);
       return true;
     }},
    {"swizzle: 32B with interleave 32B", "swizzle",
     [](Spec& s, Random& r) {
       if (s.interleave != CU_TENSOR_MAP_INTERLEAVE_32B) return false;
       constexpr CUtensorMapSwizzle kOthers[] = {
           CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};
       s.swizzle = kOthers[r.Below(3)];
       return true;
     }},
    {"swizzle: few with types of 16-byte alignment", "swizzle",
     [](Spec& s, Random&) {
       if (!SixteenByteType(s.type)) return false;
       s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B;
       return true;
     }},
    {"l2_promotion: an enumerator", "l2_promotion",
     [](Spec& s, Random&) {
       s.l2_promotion = static_cast<CUtensorMapL2promotion>(4);
       return true;
     }},
    {"oob_fill: an enumerator", "oob_fill",
     [](Spec& s, Random&) {
       s.oob_fill = static_cast<CUtensorMapFloatOOBfill>(2);
       return true;
     }},
    {"oob_fill: NaN with floating-point types only", "oob_fill",
     [](Spec& s, Random&) {
       if (FloatType(s.type)) return false;
       s.oob_fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
       return true;
     }},
};

}  // namespace

TensorMapSpec SampleTensorMap(Random& random, TensorMapKinds kinds) {
  Spec spec;
  const bool all = kinds == TensorMapKinds::kAll;
  spec.type = static_cast<CUtensorMapDataType>(random.Below(all ? 16 : 13));
  spec.rank = 1 + random.Below(5);
  spec.swizzle = AnySwizzle(random, kinds, spec.type);
  if (spec.rank >= 3 && !SixteenByteType(spec.type) && random.OneIn(4)) {
    spec.interleave = static_cast<CUtensorMapInterleave>(1 + random.Below(2));
    if (spec.interleave == CU_TENSOR_MAP_INTERLEAVE_32B) spec.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
  }
  spec.l2_promotion = static_cast<CUtensorMapL2promotion>(random.Below(4));
  if (FloatType(spec.type)) spec.oob_fill = static_cast<CUtensorMapFloatOOBfill>(random.Below(2));
  SampleTensor(random, spec);
  SampleBox(random, spec);
  return spec;
}

std::span<const TensorMapFault> TensorMapFaults() { return kFaults; }

}  // namespace tetrad::cuda
