// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/hash/hash.h"

#include "kernels/cuda/tensor_map_sample.h"

namespace tetrad::cuda {
namespace {

// A legal map of FP16 [64][256] with rows of 512 bytes.
TensorMapSpec Plain() {
  TensorMapSpec spec;
  spec.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  spec.rank = 2;
  spec.address = 0x7000000000;
  spec.dims = {256, 64};
  spec.strides = {512};
  spec.box = {64, 16};
  return spec;
}

TEST(TensorMapTest, LegalSamplesPass) {
  Random random(1);
  for (int i = 0; i < 50000; ++i) {
    const TensorMapSpec spec = SampleTensorMap(random, TensorMapKinds::kAll);
    ASSERT_EQ(CheckTensorMap(spec), absl::OkStatus()) << i;
  }
}

// What is smaller, or aligned at least as well, stays legal.
TEST(TensorMapTest, ALegalMapStaysLegalWhenItShrinks) {
  Random random(2);
  for (int i = 0; i < 30000; ++i) {
    TensorMapSpec spec = SampleTensorMap(random, TensorMapKinds::kAll);
    const uint32_t at = random.Below(spec.rank);
    switch (random.Below(6)) {
      case 0:
        spec.address *= 2;
        break;
      case 1:
        if (at > 0) spec.dims[at] = 1 + random.Next() % spec.dims[at];
        break;
      case 2:
        if (at > 0) {
          const uint32_t step = spec.element_strides[at];
          spec.box[at] = step * (1 + random.Below(spec.box[at] / step));
        }
        break;
      case 3:
        spec.box[at] /= spec.element_strides[at];
        spec.element_strides[at] = 1;
        break;
      case 4:
        if (spec.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) spec.rank = at + 1;
        break;
      case 5:
        if (spec.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) {
          spec.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
        }
        break;
    }
    ASSERT_EQ(CheckTensorMap(spec), absl::OkStatus()) << i;
  }
}

TEST(TensorMapTest, OneBrokenRuleIsRefusedByTheNameOfItsField) {
  for (const TensorMapFault& fault : TensorMapFaults()) {
    Random random(3);
    int injected = 0;
    for (int i = 0; i < 5000; ++i) {
      TensorMapSpec spec = SampleTensorMap(random, TensorMapKinds::kAll);
      if (!fault.inject(spec, random)) continue;
      ++injected;
      const absl::Status status = CheckTensorMap(spec);
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.rule << " " << i;
      ASSERT_THAT(std::string(status.message()),
                  ::testing::StartsWith("tensor map: " + std::string(fault.field)))
          << fault.rule << " " << i;
    }
    EXPECT_GE(injected, 20) << fault.rule;
  }
}

TEST(TensorMapTest, EveryFieldIsPartOfTheKey) {
  const std::vector<std::function<void(TensorMapSpec&)>> edits = {
      [](TensorMapSpec& s) { s.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; },
      [](TensorMapSpec& s) { s.rank = 1; },
      [](TensorMapSpec& s) { s.address += 16; },
      [](TensorMapSpec& s) { s.dims[0] = 255; },
      [](TensorMapSpec& s) { s.dims[4] = 1; },
      [](TensorMapSpec& s) { s.strides[0] = 528; },
      [](TensorMapSpec& s) { s.strides[3] = 16; },
      [](TensorMapSpec& s) { s.box[0] = 32; },
      [](TensorMapSpec& s) { s.box[4] = 1; },
      [](TensorMapSpec& s) { s.element_strides[0] = 2; },
      [](TensorMapSpec& s) { s.element_strides[4] = 2; },
      [](TensorMapSpec& s) { s.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; },
      [](TensorMapSpec& s) { s.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; },
      [](TensorMapSpec& s) { s.l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_64B; },
      [](TensorMapSpec& s) { s.oob_fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; },
  };
  const absl::Hash<TensorMapSpec> hash;
  EXPECT_EQ(Plain(), Plain());
  EXPECT_EQ(hash(Plain()), hash(Plain()));
  std::vector<TensorMapSpec> seen = {Plain()};
  std::vector<size_t> hashes = {hash(Plain())};
  for (const auto& edit : edits) {
    TensorMapSpec spec = Plain();
    edit(spec);
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(spec))) << seen.size();
    EXPECT_THAT(hashes, ::testing::Not(::testing::Contains(hash(spec)))) << seen.size();
    seen.push_back(spec);
    hashes.push_back(hash(spec));
  }
}

// A driver that records what it is asked, and answers as told.
struct Asked {
  CUresult answer = CUDA_SUCCESS;
  int calls = 0;
  TensorMapSpec spec;
};
Asked* asked = nullptr;

CUresult Encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                CUtensorMapFloatOOBfill oob_fill) {
  ++asked->calls;
  if (asked->answer != CUDA_SUCCESS) return asked->answer;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(map) % 64, 0u);
  TensorMapSpec& spec = asked->spec;
  spec = TensorMapSpec{.type = type,
                       .rank = rank,
                       .address = reinterpret_cast<uintptr_t>(address),
                       .interleave = interleave,
                       .swizzle = swizzle,
                       .l2_promotion = l2_promotion,
                       .oob_fill = oob_fill};
  std::copy_n(dims, rank, spec.dims.begin());
  std::copy_n(strides, rank - 1, spec.strides.begin());
  std::copy_n(box, rank, spec.box.begin());
  std::copy_n(element_strides, rank, spec.element_strides.begin());
  for (size_t i = 0; i < CU_TENSOR_MAP_NUM_QWORDS; ++i) map->opaque[i] = rank * 100 + i;
  return CUDA_SUCCESS;
}

class EncodeTensorMapTest : public ::testing::Test {
 protected:
  EncodeTensorMapTest() {
    asked = &asked_;
    driver_.TensorMapEncodeTiled = Encode;
  }
  ~EncodeTensorMapTest() override { asked = nullptr; }

  Asked asked_;
  CudaDriver driver_;
};

TEST_F(EncodeTensorMapTest, TheDriverIsAskedForExactlyTheSpec) {
  Random random(4);
  std::map<uint32_t, int> ranks;
  for (int i = 0; i < 1000; ++i) {
    const TensorMapSpec spec = SampleTensorMap(random, TensorMapKinds::kAll);
    const absl::StatusOr<CUtensorMap> map = EncodeTensorMap(driver_, spec);
    ASSERT_EQ(map.status(), absl::OkStatus());
    ASSERT_EQ(asked_.spec, spec) << i;
    for (size_t word = 0; word < CU_TENSOR_MAP_NUM_QWORDS; ++word) {
      ASSERT_EQ(map->opaque[word], spec.rank * 100 + word);
    }
    ++ranks[spec.rank];
  }
  EXPECT_EQ(asked_.calls, 1000);
  EXPECT_EQ(ranks.size(), kTensorMapRank);
}

TEST_F(EncodeTensorMapTest, WhatTheCheckRefusesTheDriverNeverSees) {
  TensorMapSpec spec = Plain();
  spec.box[1] = 257;
  EXPECT_EQ(EncodeTensorMap(driver_, spec).status(), CheckTensorMap(spec));
  EXPECT_EQ(asked_.calls, 0);
}

TEST_F(EncodeTensorMapTest, ARefusalOfTheDriverIsOurBugAndSaysSo) {
  asked_.answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(EncodeTensorMap(driver_, Plain()).status(),
            absl::InternalError("cuTensorMapEncodeTiled: the driver refuses what our rules allow: "
                                "type=6 address=481036337152 dims=256,64 strides=512 box=64,16 "
                                "element_strides=1,1 interleave=0 swizzle=0 l2_promotion=0 "
                                "oob_fill=0"));
  asked_.answer = CUDA_ERROR_DEINITIALIZED;
  EXPECT_EQ(EncodeTensorMap(driver_, Plain()).status(),
            absl::InternalError("cuTensorMapEncodeTiled: error 4"));
}

}  // namespace
}  // namespace tetrad::cuda
