// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/tensor_map.h"

namespace tetrad::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kTwoTo32 = uint64_t{1} << 32;
constexpr uint64_t kTwoTo40 = uint64_t{1} << 40;

// A legal map of FP16 [64][256] with rows of 512 bytes.
TensorMapSpec Lawful() {
  TensorMapSpec spec;
  spec.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  spec.rank = 2;
  spec.address = 0x7000000000;
  spec.dims = {256, 64};
  spec.strides = {512};
  spec.box = {64, 16};
  return spec;
}

TensorMapSpec Interleaved(CUtensorMapInterleave interleave) {
  TensorMapSpec spec = Lawful();
  spec.rank = 3;
  spec.dims = {16, 8, 4};
  spec.strides = {32, 256};
  spec.box = {16, 4, 2};
  spec.interleave = interleave;
  if (interleave == CU_TENSOR_MAP_INTERLEAVE_32B) spec.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
  return spec;
}

TensorMapSpec Packed(CUtensorMapDataType type) {
  TensorMapSpec spec = Lawful();
  spec.type = type;
  spec.box = {128, 16};
  return spec;
}

// The last legal value of a rule, and the first illegal one with what it says.
struct Edge {
  const char* rule;
  TensorMapSpec spec;
  std::function<void(TensorMapSpec&)> legal, illegal;
  const char* message;
};

#define TETRAD_EDIT(assignment) []([[maybe_unused]] TensorMapSpec& s) { assignment; }

std::vector<Edge> Edges() {
  const TensorMapSpec plain = Lawful();
  const TensorMapSpec by16 = Interleaved(CU_TENSOR_MAP_INTERLEAVE_16B);
  const TensorMapSpec by32 = Interleaved(CU_TENSOR_MAP_INTERLEAVE_32B);
  const TensorMapSpec u4 = Packed(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B);
  const TensorMapSpec u4_gaps = Packed(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B);
  const TensorMapSpec u6_gaps = Packed(CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
  TensorMapSpec three = plain;
  three.rank = 3;
  three.dims[2] = 10;
  three.strides[1] = 512 * 64;
  three.box[2] = 1;
  TensorMapSpec line = plain;
  line.rank = 1;
  TensorMapSpec five = three;
  five.rank = 5;
  five.dims = {256, 64, 10, 3, 2};
  five.strides = {512, 512 * 64, 512 * 64 * 10, 512 * 64 * 10 * 3};
  five.box = {64, 1, 1, 1, 1};
  return {
      {"type", u6_gaps, TETRAD_EDIT(), TETRAD_EDIT(s.type = static_cast<CUtensorMapDataType>(16)),
       "type=16 must be 0 to 15"},
      {"least rank", line, TETRAD_EDIT(), TETRAD_EDIT(s.rank = 0), "rank=0 must be 1 to 5"},
      {"most rank", five, TETRAD_EDIT(), TETRAD_EDIT(s.rank = 6), "rank=6 must be 1 to 5"},
      {"rank with interleave", by16, TETRAD_EDIT(), TETRAD_EDIT(s.rank = 2),
       "rank=2 must be 3 to 5 with interleave"},
      {"null", plain, TETRAD_EDIT(s.address = 16), TETRAD_EDIT(s.address = 0),
       "address=0 must be a multiple of 16 and not 0"},
      {"address", plain, TETRAD_EDIT(s.address = 48), TETRAD_EDIT(s.address = 56),
       "address=56 must be a multiple of 16 and"},
      {"address, interleave 16B", by16, TETRAD_EDIT(s.address = 48), TETRAD_EDIT(s.address = 40),
       "address=40 must be a multiple of 16 and"},
      {"address, interleave 32B", by32, TETRAD_EDIT(s.address = 64), TETRAD_EDIT(s.address = 48),
       "address=48 must be a multiple of 32 with interleave 32B"},
      {"address, 4 bits", u4, TETRAD_EDIT(s.address = 48), TETRAD_EDIT(s.address = 40),
       "address=40 must be a multiple of 16"},
      {"address, 4 bits and gaps", u4_gaps, TETRAD_EDIT(s.address = 64),
       TETRAD_EDIT(s.address = 48),
       "address=48 must be a multiple of 32 with types of 16-byte alignment"},
      {"address, 6 bits", u6_gaps, TETRAD_EDIT(s.address = 64), TETRAD_EDIT(s.address = 48),
       "address=48 must be a multiple of 32 with types of 16-byte alignment"},
      {"least dims[0]", plain, TETRAD_EDIT(s.dims[0] = 1), TETRAD_EDIT(s.dims[0] = 0),
       "dims[0]=0 must be 1 to 4294967296"},
      {"least dims", plain, TETRAD_EDIT(s.dims[1] = 1), TETRAD_EDIT(s.dims[1] = 0),
       "dims[1]=0 must be 1 to 4294967296"},
      {"most dims[0]", line, TETRAD_EDIT(s.dims[0] = kTwoTo32),
       TETRAD_EDIT(s.dims[0] = kTwoTo32 + 1), "dims[0]=4294967297 must be 1 to 4294967296"},
      {"most dims", plain, TETRAD_EDIT(s.dims[1] = kTwoTo32), TETRAD_EDIT(s.dims[1] = kTwoTo32 + 1),
       "dims[1]=4294967297 must be 1 to 4294967296"},
      {"dims[0], 4 bits", u4, TETRAD_EDIT(s.dims[0] = 254), TETRAD_EDIT(s.dims[0] = 255),
       "dims[0]=255 must be a multiple of 2 with packed types"},
      {"dims[0], 4 bits and gaps", u4_gaps, TETRAD_EDIT(s.dims[0] = 384),
       TETRAD_EDIT(s.dims[0] = 320), "dims[0]=320 must be a multiple of 128 with packed types"},
      {"dims[0], 6 bits", u6_gaps, TETRAD_EDIT(s.dims[0] = 384), TETRAD_EDIT(s.dims[0] = 320),
       "dims[0]=320 must be a multiple of 128 with packed types"},
      {"strides", plain, TETRAD_EDIT(s.strides[0] = 528), TETRAD_EDIT(s.strides[0] = 520),
       "strides[0]=520 must be a multiple of 16"},
      {"strides, interleave 16B", by16, TETRAD_EDIT((s.strides = {48, 48 * 8})),
       TETRAD_EDIT((s.strides = {40, 40 * 8})), "strides[0]=40 must be a multiple of 16"},
      {"strides, interleave 32B", by32, TETRAD_EDIT((s.strides = {64, 64 * 8})),
       TETRAD_EDIT((s.strides = {48, 48 * 8})),
       "strides[0]=48 must be a multiple of 32 with interleave 32B"},
      {"strides, 4 bits", u4, TETRAD_EDIT(s.strides[0] = 144), TETRAD_EDIT(s.strides[0] = 136),
       "strides[0]=136 must be a multiple of 16"},
      {"strides, 4 bits and gaps", u4_gaps, TETRAD_EDIT(s.strides[0] = 160),
       TETRAD_EDIT(s.strides[0] = 144),
       "strides[0]=144 must be a multiple of 32 with types of 16-byte alignment"},
      {"strides, 6 bits", u6_gaps, TETRAD_EDIT(s.strides[0] = 224), TETRAD_EDIT(s.strides[0] = 208),
       "strides[0]=208 must be a multiple of 32 with types of 16-byte alignment"},
      {"most strides", plain, TETRAD_EDIT(s.strides[0] = kTwoTo40 - 16),
       TETRAD_EDIT(s.strides[0] = kTwoTo40),
       "strides[0]=1099511627776 must be below 1099511627776"},
      {"row", plain, TETRAD_EDIT(s.strides[0] = 512), TETRAD_EDIT(s.strides[0] = 496),
       "strides[0]=496 must be at least 512, the extent of dimension 0"},
      {"row, 4 bits", u4, TETRAD_EDIT(s.strides[0] = 128), TETRAD_EDIT(s.strides[0] = 112),
       "strides[0]=112 must be at least 128, the extent of dimension 0"},
      {"row, 6 bits", u6_gaps, TETRAD_EDIT(s.strides[0] = 192), TETRAD_EDIT(s.strides[0] = 160),
       "strides[0]=160 must be at least 192, the extent of dimension 0"},
      {"row longer by a byte", u4, TETRAD_EDIT((s.dims[0] = 34, s.strides[0] = 32)),
       TETRAD_EDIT((s.dims[0] = 34, s.strides[0] = 16)),
       "strides[0]=16 must be at least 17, the extent of dimension 0"},
      {"plane", three, TETRAD_EDIT(s.strides[1] = 512 * 64), TETRAD_EDIT(s.strides[1] = 512 * 63),
       "strides[1]=32256 must be at least 32768, the extent of dimension 1"},
      {"plane beyond 64 bits", three, TETRAD_EDIT(s.dims[1] = 1),
       TETRAD_EDIT((s.dims[1] = kTwoTo32, s.strides = {kTwoTo40 - 16, kTwoTo40 - 16})),
       "strides[1]=1099511627760 must be at least 18446744073709551615, the extent of dimension 1"},
      {"multiple", three, TETRAD_EDIT(s.strides[1] = 512 * 65),
       TETRAD_EDIT(s.strides[1] = 512 * 65 + 16),
       "strides[1]=33296 must be a multiple of 512, the stride before it"},
      {"multiple in dimension 4", five, TETRAD_EDIT(), TETRAD_EDIT(s.strides[3] += 512),
       "strides[3]=983552 must be a multiple of 327680, the stride before it"},
      {"least box[0]", plain, TETRAD_EDIT(s.box[0] = 8), TETRAD_EDIT(s.box[0] = 0),
       "box[0]=0 must be 1 to 256"},
      {"least box", plain, TETRAD_EDIT(s.box[1] = 1), TETRAD_EDIT(s.box[1] = 0),
       "box[1]=0 must be 1 to 256"},
      {"most box[0]", plain, TETRAD_EDIT(s.box[0] = 256), TETRAD_EDIT(s.box[0] = 264),
       "box[0]=264 must be 1 to 256"},
      {"most box", five, TETRAD_EDIT(s.box[4] = 256), TETRAD_EDIT(s.box[4] = 257),
       "box[4]=257 must be 1 to 256"},
      {"box in chunks", plain, TETRAD_EDIT(s.box[0] = 56), TETRAD_EDIT(s.box[0] = 57),
       "box[0]=57 must be a multiple of 16 bytes, that is of 8 elements"},
      {"box in chunks, 4 bits", u4, TETRAD_EDIT(s.box[0] = 96), TETRAD_EDIT(s.box[0] = 112),
       "box[0]=112 must be a multiple of 16 bytes, that is of 32 elements"},
      {"box in chunks, not with interleave", by16, TETRAD_EDIT(s.box[0] = 5),
       TETRAD_EDIT(s.box[0] = 0), "box[0]=0 must be"},
      {"box, 4 bits and gaps", u4_gaps, TETRAD_EDIT(s.box[0] = 128), TETRAD_EDIT(s.box[0] = 256),
       "box[0]=256 must be 128 with types of 16-byte alignment"},
      {"box, 6 bits", u6_gaps, TETRAD_EDIT(s.box[0] = 128), TETRAD_EDIT(s.box[0] = 64),
       "box[0]=64 must be 128 with types of 16-byte alignment"},
      {"span 32", plain, TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 16)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 24)),
       "box[0]=24 must be at most 32 bytes, the span of the swizzle, that is 16 elements"},
      {"span 64", plain, TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_64B, s.box[0] = 32)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_64B, s.box[0] = 40)),
       "box[0]=40 must be at most 64 bytes"},
      {"span 128", plain, TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B, s.box[0] = 64)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B, s.box[0] = 72)),
       "box[0]=72 must be at most 128 bytes"},
      {"span 128, atoms of 32", plain,
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B, s.box[0] = 64)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B, s.box[0] = 72)),
       "at most 128 bytes"},
      {"span 128, atoms of 32, flipped", plain,
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, s.box[0] = 64)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, s.box[0] = 72)),
       "at most 128 bytes"},
      {"span 128, atoms of 64", plain,
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B, s.box[0] = 64)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B, s.box[0] = 72)),
       "at most 128 bytes"},
      {"span, 4 bits", u4, TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 64)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 96)), "that is 64 elements"},
      {"no span with interleave", by16,
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 256)),
       TETRAD_EDIT((s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B, s.box[0] = 257)),
       "box[0]=257 must be 1 to 256"},
      {"least element stride", five, TETRAD_EDIT(s.element_strides[1] = 1),
       TETRAD_EDIT(s.element_strides[1] = 0), "element_strides[1]=0 must be 1 to 8"},
      {"most element stride", five, TETRAD_EDIT((s.element_strides[4] = 8, s.box[4] = 8)),
       TETRAD_EDIT(s.element_strides[4] = 9), "element_strides[4]=9 must be 1 to 8"},
      {"element stride of the row", by16, TETRAD_EDIT(s.element_strides[0] = 8),
       TETRAD_EDIT(s.element_strides[0] = 9), "element_strides[0]=9 must be 1 to 8"},
      {"whole element strides", five, TETRAD_EDIT((s.element_strides[2] = 3, s.box[2] = 9)),
       TETRAD_EDIT((s.element_strides[2] = 3, s.box[2] = 10)),
       "box[2]=10 must be a multiple of 3, its element stride"},
      {"whole element strides of the row", by16, TETRAD_EDIT(s.element_strides[0] = 4),
       TETRAD_EDIT(s.element_strides[0] = 5),
       "box[0]=16 must be a multiple of 5, its element stride"},
      {"most bytes", five, TETRAD_EDIT((s.box = {64, 19, 96, 1, 1})),
       TETRAD_EDIT((s.box = {64, 5, 73, 5, 1})), "box bytes=233600 must be at most 233472"},
      {"most bytes, element strides", five,
       TETRAD_EDIT((s.box = {64, 19, 192, 1, 1}, s.element_strides[2] = 2)),
       TETRAD_EDIT((s.box = {64, 19, 194, 1, 1}, s.element_strides[2] = 2)),
       "box bytes=235904 must be at most 233472"},
      {"most bytes, interleave", by16, TETRAD_EDIT((s.box = {8, 114, 128})),
       TETRAD_EDIT((s.box = {8, 115, 128})), "box bytes=235520 must be at most 233472"},
      {"most bytes, gaps", u4_gaps,
       TETRAD_EDIT((s.rank = 3, s.strides[1] = 512 * 64, s.dims[2] = 1, s.box = {128, 19, 96})),
       TETRAD_EDIT((s.rank = 3, s.strides[1] = 512 * 64, s.dims[2] = 1, s.box = {128, 19, 97})),
       "box bytes=235904 must be at most 233472"},
      {"interleave", by32, TETRAD_EDIT(),
       TETRAD_EDIT(s.interleave = static_cast<CUtensorMapInterleave>(3)),
       "interleave=3 must be 0 to 2"},
      {"interleave, 6 bits",
       [&] {
         TensorMapSpec spec = u6_gaps;
         spec.rank = 3;
         spec.dims[2] = 1;
         spec.strides[1] = 512 * 64;
         spec.box[2] = 1;
         return spec;
       }(),
       TETRAD_EDIT(), TETRAD_EDIT(s.interleave = CU_TENSOR_MAP_INTERLEAVE_16B),
       "interleave=1 must be 0 (none) with type 16U6_ALIGN16B"},
      {"swizzle", plain, TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B),
       TETRAD_EDIT(s.swizzle = static_cast<CUtensorMapSwizzle>(7)), "swizzle=7 must be 0 to 6"},
      {"swizzle, interleave 32B", by32, TETRAD_EDIT(),
       TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE),
       "swizzle=0 must be 1 (32B) with interleave 32B"},
      {"swizzle, 4 bits and gaps", u4_gaps,
       TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B),
       TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B),
       "swizzle=6 must be none, 128B or 128B_ATOM_32B with types of 16-byte alignment"},
      {"swizzle, 6 bits", u6_gaps, TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B),
       TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B),
       "swizzle=5 must be none, 128B, 128B_ATOM_32B or 128B_ATOM_64B with types"},
      {"narrow swizzle, 6 bits", u6_gaps, TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B),
       TETRAD_EDIT(s.swizzle = CU_TENSOR_MAP_SWIZZLE_64B), "swizzle=2 must be none, 128B"},
      {"l2_promotion", plain, TETRAD_EDIT(s.l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
       TETRAD_EDIT(s.l2_promotion = static_cast<CUtensorMapL2promotion>(4)),
       "l2_promotion=4 must be 0 to 3"},
      {"oob_fill", plain,
       TETRAD_EDIT(s.oob_fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA),
       TETRAD_EDIT(s.oob_fill = static_cast<CUtensorMapFloatOOBfill>(2)),
       "oob_fill=2 must be 0 to 1"},
      {"oob_fill, integers", plain,
       TETRAD_EDIT(s.oob_fill = static_cast<CUtensorMapFloatOOBfill>(1)),
       TETRAD_EDIT((s.oob_fill = static_cast<CUtensorMapFloatOOBfill>(1),
                    s.type = CU_TENSOR_MAP_DATA_TYPE_UINT16)),
       "oob_fill=1 must be 0 (zeros) with types that are not floating-point"},
  };
}

TEST(TensorMapRulesTest, EachRuleHoldsAtItsEdge) {
  for (const Edge& edge : Edges()) {
    TensorMapSpec legal = edge.spec;
    edge.legal(legal);
    EXPECT_EQ(CheckTensorMap(legal), absl::OkStatus()) << edge.rule;
    TensorMapSpec illegal = edge.spec;
    edge.illegal(illegal);
    const absl::Status status = CheckTensorMap(illegal);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << edge.rule;
    EXPECT_THAT(std::string(status.message()), StartsWith("tensor map: ")) << edge.rule;
    EXPECT_THAT(std::string(status.message()), HasSubstr(edge.message)) << edge.rule;
  }
}

TEST(TensorMapRulesTest, NaNFillsTheFloatingPointTypes) {
  for (int type = 0; type < 16; ++type) {
    TensorMapSpec spec = Lawful();
    spec.dims = {128, 64};
    spec.strides = {1024};
    spec.type = static_cast<CUtensorMapDataType>(type);
    spec.box[0] = 128;
    EXPECT_EQ(CheckTensorMap(spec), absl::OkStatus()) << type;
    spec.oob_fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    EXPECT_EQ(CheckTensorMap(spec).ok(), type >= 6 && type <= 12) << type;
  }
}

TEST(TensorMapRulesTest, EntriesFromTheRankOnAreNotChecked) {
  TensorMapSpec spec = Lawful();
  spec.dims[2] = kTwoTo40;
  spec.strides[1] = 3;
  spec.box[4] = 1000;
  spec.element_strides[2] = 0;
  EXPECT_EQ(CheckTensorMap(spec), absl::OkStatus());
}

TEST(TensorMapRulesTest, BoxBytesCountWhatIsLoaded) {
  TensorMapSpec spec = Lawful();
  EXPECT_EQ(BoxBytes(spec), 64u * 16 * 2);
  spec.element_strides = {3, 4};  // the first is ignored
  EXPECT_EQ(CheckTensorMap(spec), absl::OkStatus());
  EXPECT_EQ(BoxBytes(spec), 64u * 4 * 2);
  EXPECT_EQ(BoxBytes(Packed(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B)), 128u * 16 / 2);
  EXPECT_EQ(BoxBytes(Packed(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B)), 128u * 16);
  EXPECT_EQ(BoxBytes(Packed(CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B)), 128u * 16);
  TensorMapSpec interleaved = Interleaved(CU_TENSOR_MAP_INTERLEAVE_16B);
  interleaved.element_strides[0] = 4;
  EXPECT_EQ(CheckTensorMap(interleaved), absl::OkStatus());
  EXPECT_EQ(BoxBytes(interleaved), 4u * 4 * 2 * 2);
}

}  // namespace
}  // namespace tetrad::cuda
