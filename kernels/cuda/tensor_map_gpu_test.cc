// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Our rules against the driver's, and what a tensor map loads against a model
// on the host: box, out-of-bounds fill and swizzle. Needs compute capability 9.0.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tensor_map_load.h"
#include "kernels/cuda/tensor_map_sample.h"
#include "kernels/random.h"

// The image of tensor_map_load.cu, part of this program.
asm(".section .rodata\n"
    ".balign 16\n"
    ".global kTetradTensorMapLoadImage\n"
    "kTetradTensorMapLoadImage: .incbin \"" TETRAD_TENSOR_MAP_LOAD
    "\"\n"
    ".previous\n");
extern "C" const char kTetradTensorMapLoadImage[];

namespace tetrad::cuda {
namespace {

#define TETRAD_MUST(call) ASSERT_EQ(call, CUDA_SUCCESS) << #call

// Rules the driver documents but is not held to refuse: it may encode what
// breaks them, so that they are ours alone.
const std::set<std::string_view> kNotHeld = {
    "address: not null",
    "strides: contain a row",
    "strides: contain the dimension before",
    "strides: multiples of the one before",
};

class TensorMapGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<CudaDriver> loaded = LoadCudaDriver();
    if (!loaded.ok()) GTEST_SKIP() << loaded.status();
    driver_ = *loaded;
    int devices = 0;
    TETRAD_MUST(driver_.DeviceGetCount(&devices));
    if (devices == 0) GTEST_SKIP() << "no device";
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
    if (memory_ != 0) {
      driver_.MemUnmap(memory_, memory_bytes_);
      driver_.MemAddressFree(memory_, memory_bytes_);
    }
    if (module_ != nullptr) driver_.ModuleUnload(module_);
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

  void Allocate(size_t bytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    size_t granule = 0;
    TETRAD_MUST(driver_.MemGetAllocationGranularity(&granule, &properties,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    memory_bytes_ = (bytes + granule - 1) / granule * granule;
    CUmemGenericAllocationHandle handle = 0;
    TETRAD_MUST(driver_.MemCreate(&handle, memory_bytes_, &properties, 0));
    CUdeviceptr address = 0;
    TETRAD_MUST(driver_.MemAddressReserve(&address, memory_bytes_, 0, 0, 0));
    TETRAD_MUST(driver_.MemMap(address, memory_bytes_, 0, handle, 0));
    memory_ = address;
    TETRAD_MUST(driver_.MemRelease(handle));
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    TETRAD_MUST(driver_.MemSetAccess(address, memory_bytes_, &access, 1));
  }

  // Device memory: the tensors' bytes, then what a load copies out, then its flag.
  void PrepareLoads() {
    ASSERT_NO_FATAL_FAILURE(Allocate(kTensorBytes + kTensorMapLoadWindow + 16));
    Random random(11);
    tensor_.resize(kTensorBytes);
    for (uint8_t& byte : tensor_) byte = static_cast<uint8_t>(random.Next());
    TETRAD_MUST(driver_.MemcpyHtoDAsync(memory_, tensor_.data(), kTensorBytes, nullptr));
    TETRAD_MUST(driver_.StreamSynchronize(nullptr));
    TETRAD_MUST(driver_.ModuleLoadData(&module_, kTetradTensorMapLoadImage));
    TETRAD_MUST(driver_.ModuleGetFunction(&function_, module_, kTensorMapLoadEntry));
  }

  void Load(const TensorMapSpec& spec, const std::array<int32_t, 5>& at,
            std::vector<uint8_t>& window) {
    const absl::StatusOr<CUtensorMap> encoded = EncodeTensorMap(driver_, spec);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    CUtensorMap map = *encoded;
    const CUdeviceptr out = memory_ + kTensorBytes;
    const CUdeviceptr flag = out + kTensorMapLoadWindow;
    TensorMapLoad load;
    load.out = std::bit_cast<uint8_t*>(out);
    load.timed_out = std::bit_cast<uint32_t*>(flag);
    std::copy(at.begin(), at.end(), load.at);
    load.rank = spec.rank;
    load.box_bytes = static_cast<uint32_t>(BoxBytes(spec));
    // A guard behind the box shows a load of more than it.
    load.window_bytes = load.box_bytes + 256;
    ASSERT_LE(load.window_bytes, kTensorMapLoadWindow);
    TETRAD_MUST(driver_.MemsetD8Async(out, 0, kTensorMapLoadWindow + 16, nullptr));
    void* arguments[] = {&map, &load};
    TETRAD_MUST(driver_.LaunchKernel(function_, 1, 1, 1, kTensorMapLoadThreads, 1, 1,
                                     kTensorMapLoadShared, nullptr, arguments, nullptr));
    window.resize(load.window_bytes);
    uint32_t timed_out = 0;
    TETRAD_MUST(driver_.MemcpyDtoHAsync(window.data(), out, window.size(), nullptr));
    TETRAD_MUST(driver_.MemcpyDtoHAsync(&timed_out, flag, sizeof(timed_out), nullptr));
    TETRAD_MUST(driver_.StreamSynchronize(nullptr));
    ASSERT_EQ(timed_out, 0u) << "the box has not the bytes that were expected";
  }

  static constexpr size_t kTensorBytes = 1 << 20;

  CudaDriver driver_;
  CUdevice device_ = 0;
  int major_ = 0;
  bool retained_ = false;
  CUdeviceptr memory_ = 0;
  size_t memory_bytes_ = 0;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  std::vector<uint8_t> tensor_;
};

TEST_F(TensorMapGpuTest, TheDriverTakesWhatOurRulesAllow) {
  Random random(5);
  int refused = 0;
  for (int i = 0; i < 50000 && refused < 10; ++i) {
    const absl::Status status = EncodeTensorMap(driver_, SampleTensorMap(random, kinds())).status();
    EXPECT_EQ(status, absl::OkStatus()) << i;
    refused += !status.ok();
  }
}

TEST_F(TensorMapGpuTest, TheDriverRefusesWhatOurRulesRefuse) {
  for (const TensorMapFault& fault : TensorMapFaults()) {
    Random random(6);
    int injected = 0, refused = 0;
    for (int i = 0; i < 20000 && injected < 500; ++i) {
      TensorMapSpec spec = SampleTensorMap(random, kinds());
      if (!fault.inject(spec, random)) continue;
      ++injected;
      refused += !Encodes(spec);
    }
    std::cout << fault.rule << ": refused " << refused << " of " << injected
              << (kNotHeld.contains(fault.rule) ? " (ours)" : "") << "\n";
    EXPECT_TRUE(refused == injected || kNotHeld.contains(fault.rule)) << fault.rule;
  }
}

struct LoadedType {
  CUtensorMapDataType type;
  uint32_t bytes;
  uint64_t infinity;  // bits; 0: no NaN fill
};
constexpr LoadedType kLoadedTypes[] = {
    {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 0},
    {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, 0},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, 0x7C00},
    {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, 0x7F80},
    {CU_TENSOR_MAP_DATA_TYPE_INT32, 4, 0},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 0x7F800000},
    {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, 0},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, 0x7FF0000000000000},
};

// Where byte `offset` of the box lies; the box begins at a multiple of 1024.
uint32_t Swizzled(CUtensorMapSwizzle swizzle, uint32_t offset) {
  const uint32_t rows = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE  ? 0
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 1
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 3
                                                               : 7;
  return offset ^ ((offset >> 7 & rows) << 4);
}

// A tensor that fits into kTensorBytes and a box that fits into the window.
TensorMapSpec SmallMap(Random& random, const LoadedType& type, CUtensorMapSwizzle swizzle,
                       uint32_t rank, bool element_strides) {
  TensorMapSpec spec;
  spec.type = type.type;
  spec.rank = rank;
  spec.swizzle = swizzle;
  spec.l2_promotion = static_cast<CUtensorMapL2promotion>(random.Below(4));
  const uint32_t chunk = 16 / type.bytes;
  spec.box[0] = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? chunk * (1 + random.Below(8))
                                                      : (16u << swizzle) / type.bytes;
  spec.dims[0] = 1 + random.Below(3 * spec.box[0]);
  uint64_t extent = (spec.dims[0] * type.bytes + 15) / 16 * 16 + 16 * random.Below(3);
  uint32_t rows = 256;
  for (uint32_t i = 1; i < rank; ++i) {
    spec.strides[i - 1] = extent;
    spec.dims[i] = 1 + random.Below(static_cast<uint32_t>(
                           std::min<uint64_t>(i == 1 ? 40 : 6, (512 << 10) / extent)));
    extent *= spec.dims[i];
    spec.box[i] = 1 + random.Below(std::min(rows, i == 1 ? 64u : 6u));
    rows /= spec.box[i];
    if (element_strides) spec.element_strides[i] = 1 + random.Below(4);
  }
  if (type.infinity != 0) spec.oob_fill = static_cast<CUtensorMapFloatOOBfill>(random.Below(2));
  return spec;
}

// Compares a loaded window with what the map means.
void Verify(const TensorMapSpec& spec, const LoadedType& type, const std::array<int32_t, 5>& at,
            const std::vector<uint8_t>& tensor, const std::vector<uint8_t>& window) {
  std::array<uint32_t, 5> counts = {1, 1, 1, 1, 1};
  for (uint32_t i = 0; i < spec.rank; ++i) {
    const uint32_t step = i == 0 ? 1 : spec.element_strides[i];
    counts[i] = (spec.box[i] + step - 1) / step;
  }
  const uint32_t elements = counts[0] * counts[1] * counts[2] * counts[3] * counts[4];
  for (uint32_t element = 0; element < elements; ++element) {
    uint64_t source = 0;
    bool inside = true;
    uint32_t rest = element;
    for (uint32_t i = 0; i < spec.rank; ++i) {
      const int64_t index =
          at[i] + int64_t{rest % counts[i]} * (i == 0 ? 1 : spec.element_strides[i]);
      rest /= counts[i];
      inside = inside && index >= 0 && index < static_cast<int64_t>(spec.dims[i]);
      source += static_cast<uint64_t>(index) * (i == 0 ? type.bytes : spec.strides[i - 1]);
    }
    uint64_t expected = 0, loaded = 0;
    std::memcpy(&loaded, &window[Swizzled(spec.swizzle, element * type.bytes)], type.bytes);
    if (inside) {
      std::memcpy(&expected, &tensor[source], type.bytes);
    } else if (spec.oob_fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
      const uint64_t magnitude = loaded & ((uint64_t{1} << (8 * type.bytes - 1)) - 1);
      ASSERT_GT(magnitude, type.infinity) << "no NaN: element " << element;
      continue;
    }
    ASSERT_EQ(loaded, expected) << "element " << element << (inside ? "" : ", out of bounds");
  }
  for (size_t i = size_t{elements} * type.bytes; i < window.size(); ++i) {
    ASSERT_EQ(window[i], kUntouched) << "byte " << i << " is beyond the box";
  }
}

class TensorMapLoadGpuTest : public TensorMapGpuTest, public ::testing::WithParamInterface<bool> {};

TEST_P(TensorMapLoadGpuTest, LoadsWhatTheMapSays) {
  if (major_ != 9) GTEST_SKIP() << "the kernel that loads is compiled for 9.0";
  ASSERT_NO_FATAL_FAILURE(PrepareLoads());
  Random random(8);
  for (const LoadedType& type : kLoadedTypes) {
    for (int swizzle = 0; swizzle <= CU_TENSOR_MAP_SWIZZLE_128B; ++swizzle) {
      for (uint32_t rank = 1; rank <= 5; ++rank) {
        for (int repeat = 0; repeat < 8; ++repeat) {
          TensorMapSpec spec =
              SmallMap(random, type, static_cast<CUtensorMapSwizzle>(swizzle), rank, GetParam());
          spec.address = memory_;
          std::array<int32_t, 5> at = {};
          for (uint32_t i = 0; i < rank; ++i) {
            // Mostly inside; else from all before the tensor to all behind it.
            const auto box = static_cast<int32_t>(spec.box[i]);
            const auto size = static_cast<int32_t>(spec.dims[i]);
            at[i] = random.OneIn(4) ? random.Between(-box, size + 1) : random.Between(0, size - 1);
          }
          std::vector<uint8_t> window;
          ASSERT_NO_FATAL_FAILURE(Load(spec, at, window));
          ASSERT_NO_FATAL_FAILURE(Verify(spec, type, at, tensor_, window))
              << "type " << spec.type << " swizzle " << swizzle << " rank " << rank << " repeat "
              << repeat;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ElementStrides, TensorMapLoadGpuTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Some" : "None"; });

}  // namespace
}  // namespace tetrad::cuda
