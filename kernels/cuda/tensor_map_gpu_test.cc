// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Our rules of tensor maps against the driver's: which maps it encodes. Nothing is
// launched. Needs compute capability 9.0.
#include <algorithm>
#include <bit>
#include <iostream>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tensor_map_sample.h"
#include "kernels/random.h"

namespace tetrad::cuda {
namespace {

#define TETRAD_MUST(call) ASSERT_EQ(call, CUDA_SUCCESS) << #call

// "Ours" in tensor_map.h: the driver may encode what breaks them.
const std::set<std::string_view> kNotHeld = {
    "address: not null",
    "strides: contain a row",
    "strides: contain the dimension before",
    "strides: multiples of the one before",
    "box: a multiple of its element stride",
    "swizzle: 32B with interleave 32B",
};

// CTest knows a skipped program by these words (cmake/Cuda.cmake).
constexpr char kNoDevice[] = "no device: every test is skipped ";

class TensorMapGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<CudaDriver> loaded = LoadCudaDriver();
    if (!loaded.ok()) GTEST_SKIP() << kNoDevice << loaded.status();
    driver_ = *loaded;
    int devices = 0;
    TETRAD_MUST(driver_.DeviceGetCount(&devices));
    if (devices == 0) GTEST_SKIP() << kNoDevice;
    TETRAD_MUST(driver_.DeviceGet(&device_, 0));
    TETRAD_MUST(
        driver_.DeviceGetAttribute(&major_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
    if (major_ < 9) GTEST_SKIP() << "compute capability " << major_ << " has no tensor maps";
    CUcontext context = nullptr;
    TETRAD_MUST(driver_.DevicePrimaryCtxRetain(&context, device_));
    retained_ = true;
    TETRAD_MUST(driver_.CtxSetCurrent(context));
  }
  void TearDown() override {
    if (retained_) driver_.DevicePrimaryCtxRelease(device_);
  }

  TensorMapKinds kinds() const {
    return major_ >= 10 ? TensorMapKinds::kAll : TensorMapKinds::kHopper;
  }

  // The driver's own answer, whatever we think of the spec.
  bool Encodes(const TensorMapSpec& spec) const {
    CUtensorMap map;
    // Of a rank that is too high it may read more than there is.
    uint64_t dims[8] = {}, strides[8] = {};
    uint32_t box[8] = {}, element_strides[8] = {};
    std::copy(spec.dims.begin(), spec.dims.end(), dims);
    std::copy(spec.strides.begin(), spec.strides.end(), strides);
    std::copy(spec.box.begin(), spec.box.end(), box);
    std::copy(spec.element_strides.begin(), spec.element_strides.end(), element_strides);
    return driver_.TensorMapEncodeTiled(&map, spec.type, spec.rank,
                                        std::bit_cast<void*>(spec.address), dims, strides, box,
                                        element_strides, spec.interleave, spec.swizzle,
                                        spec.l2_promotion, spec.oob_fill) == CUDA_SUCCESS;
  }

  CudaDriver driver_;
  CUdevice device_ = 0;
  int major_ = 0;
  bool retained_ = false;
};

TEST_F(TensorMapGpuTest, TheDriverTakesWhatOurRulesAllow) {
  Random random(5);
  int refused = 0;
  uint64_t largest = 0;
  for (int i = 0; i < 50000 && refused < 10; ++i) {
    const TensorMapSpec spec = SampleTensorMap(random, kinds());
    const absl::Status status = EncodeTensorMap(driver_, spec).status();
    EXPECT_EQ(status, absl::OkStatus()) << i << ": box of " << BoxBytes(spec) << " bytes";
    refused += !status.ok();
    if (status.ok()) largest = std::max(largest, BoxBytes(spec));
  }
  std::cout << "samples: largest accepted box " << largest << " bytes\n";
}

TEST_F(TensorMapGpuTest, TheDriverRefusesWhatOurRulesRefuse) {
  for (const TensorMapFault& fault : TensorMapFaults()) {
    Random random(6);
    int injected = 0, refused = 0;
    std::string accepted;
    for (int i = 0; i < 20000 && injected < 500; ++i) {
      TensorMapSpec spec = SampleTensorMap(random, kinds());
      if (!fault.inject(spec, random)) continue;
      ++injected;
      const bool encoded = Encodes(spec);
      refused += !encoded;
      // A spec without a rank or an enumerator cannot be described.
      if (encoded && spec.rank - 1 < kTensorMapRank) accepted = DescribeTensorMap(spec);
    }
    std::cout << fault.rule << ": refused " << refused << " of " << injected
              << (kNotHeld.contains(fault.rule) ? " (ours)" : "") << "\n";
    EXPECT_TRUE(refused == injected || kNotHeld.contains(fault.rule))
        << fault.rule << ": the driver accepts " << accepted;
  }
}

// Boxes with rows of 16 bytes times `inner`, and of all sizes in two more dimensions.
struct BoxFamily {
  std::string_view name;
  CUtensorMapDataType type;
  uint32_t elements;  // of 16 bytes
  uint32_t inner;
  uint32_t element_stride;  // of dimension 1
  uint32_t ragged;          // elements by which box[1] is beyond a multiple of it
  CUtensorMapSwizzle swizzle;
  CUtensorMapInterleave interleave;
};
constexpr BoxFamily kBoxFamilies[] = {
    {"bytes", CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 1, 1, 0, CU_TENSOR_MAP_SWIZZLE_NONE,
     CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"rows of 48 bytes", CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 3, 1, 0, CU_TENSOR_MAP_SWIZZLE_NONE,
     CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"FP64, swizzle 128B", CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 2, 8, 1, 0, CU_TENSOR_MAP_SWIZZLE_128B,
     CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"interleave 16B", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 8, 1, 1, 0, CU_TENSOR_MAP_SWIZZLE_NONE,
     CU_TENSOR_MAP_INTERLEAVE_16B},
    {"interleave 32B", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 8, 2, 1, 0, CU_TENSOR_MAP_SWIZZLE_32B,
     CU_TENSOR_MAP_INTERLEAVE_32B},
    {"element stride 2", CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 2, 2, 0, CU_TENSOR_MAP_SWIZZLE_NONE,
     CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"element stride 3", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 4, 3, 0, CU_TENSOR_MAP_SWIZZLE_NONE,
     CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"element stride 3, one more", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 4, 3, 1,
     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE},
    {"element stride 8, seven more", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 32, 8, 7,
     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE},
};

// What of a family was accepted and refused, in bytes of one way to count them.
struct Bound {
  uint64_t accepted = 0, refused = UINT64_MAX;

  void Count(bool encoded, uint64_t bytes) {
    if (encoded) accepted = std::max(accepted, bytes);
    if (!encoded) refused = std::min(refused, bytes);
  }
  friend std::ostream& operator<<(std::ostream& out, const Bound& bound) {
    return out << bound.accepted << " / " << bound.refused
               << (bound.accepted < bound.refused ? "" : " (no bound)");
  }
};

TEST_F(TensorMapGpuTest, TheLargestBoxIsWhatWeSay) {
  int shared = 0;
  TETRAD_MUST(driver_.DeviceGetAttribute(
      &shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device_));
  std::cout << "shared memory of an SM: " << shared << " bytes\n"
            << "largest accepted / smallest refused bytes of a box, by floor; by ceil; unstrided\n";
  for (const BoxFamily& family : kBoxFamilies) {
    TensorMapSpec spec;
    spec.type = family.type;
    spec.rank = 3;
    spec.address = 1 << 20;
    spec.dims = {4096, 4096, 4096};
    spec.strides = {4096 * 8, uint64_t{4096} * 4096 * 8};
    spec.swizzle = family.swizzle;
    spec.interleave = family.interleave;
    spec.element_strides[1] = family.element_stride;
    const uint32_t step = family.element_stride, row = 16 * family.inner;
    Bound by_floor, by_ceil, unstrided;
    int beyond = 0, within = 0;  // maps whose answer is not what the rule says
    for (uint32_t steps = 1; step * steps + family.ragged <= 256; ++steps) {
      for (uint32_t planes = 1; planes <= 256; ++planes) {
        spec.box = {family.elements * family.inner, step * steps + family.ragged, planes};
        const bool encoded = Encodes(spec);
        const uint64_t bytes = uint64_t{row} * steps * planes;
        by_floor.Count(encoded, bytes);
        by_ceil.Count(encoded, uint64_t{row} * (steps + (family.ragged != 0)) * planes);
        unstrided.Count(encoded, uint64_t{row} * spec.box[1] * planes);
        beyond += encoded && bytes > kMaxBoxBytes;
        within += !encoded && bytes <= kMaxBoxBytes;
      }
    }
    std::cout << family.name << ": " << by_floor << "; " << by_ceil << "; " << unstrided << "\n";
    // Others may have another bound: seen above, and refused by the driver in time.
    if (major_ == 9) {
      EXPECT_EQ(beyond, 0) << family.name << ": accepts more than " << kMaxBoxBytes << " bytes";
    }
    EXPECT_EQ(within, 0) << family.name << ": refuses at most " << kMaxBoxBytes << " bytes";
  }
}

}  // namespace
}  // namespace tetrad::cuda
