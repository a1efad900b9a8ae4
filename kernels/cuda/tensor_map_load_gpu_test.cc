// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a tensor map loads against a model on the host: box, out-of-bounds fill,
// swizzle, element strides. Needs compute capability 9.
//
// A load that is illegal ends the use of the device for the process, so each test
// does its loads in a process of its own ("threadsafe" death tests run the program
// anew), which says of the first failure all there is to say.
//
// Not covered: interleave, packed types, swizzles with atoms of more than 16 bytes,
// rows narrower than the swizzle's span.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tensor_map_load.h"
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

// For members of Loader that return a status.
#define TETRAD_LOADER_TRY(call)                                              \
  if (const CUresult result = driver_.call; result != CUDA_SUCCESS) {        \
    return absl::InternalError(absl::StrCat("cu" #call ": ", Name(result))); \
  }

using Coordinates = std::array<int32_t, 5>;

constexpr size_t kTensorBytes = 1 << 20;

// The device of a process that ends without giving anything back.
class Loader {
 public:
  explicit Loader(const CudaDriver& driver) : driver_(driver) {}

  // Device memory: the tensor's bytes, then what a load copies out, then its flag.
  absl::Status Prepare() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    TETRAD_LOADER_TRY(DeviceGet(&device, 0));
    TETRAD_LOADER_TRY(DevicePrimaryCtxRetain(&context, device));
    TETRAD_LOADER_TRY(CtxSetCurrent(context));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    size_t granule = 0;
    TETRAD_LOADER_TRY(
        MemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const size_t least = kTensorBytes + kTensorMapLoadWindow + sizeof(uint32_t);
    const size_t bytes = (least + granule - 1) / granule * granule;
    CUmemGenericAllocationHandle handle = 0;
    TETRAD_LOADER_TRY(MemCreate(&handle, bytes, &properties, 0));
    TETRAD_LOADER_TRY(MemAddressReserve(&memory_, bytes, 0, 0, 0));
    TETRAD_LOADER_TRY(MemMap(memory_, bytes, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    TETRAD_LOADER_TRY(MemSetAccess(memory_, bytes, &access, 1));
    Random random(11);
    tensor_.resize(kTensorBytes);
    for (uint8_t& byte : tensor_) byte = static_cast<uint8_t>(random.Next());
    TETRAD_LOADER_TRY(MemcpyHtoDAsync(memory_, tensor_.data(), kTensorBytes, nullptr));
    TETRAD_LOADER_TRY(StreamSynchronize(nullptr));
    TETRAD_LOADER_TRY(ModuleLoadData(&module_, kTetradTensorMapLoadImage));
    TETRAD_LOADER_TRY(ModuleGetFunction(&function_, module_, kTensorMapLoadEntry));
    return absl::OkStatus();
  }

  // What is in shared memory from the box on, with a guard behind the box that
  // shows a load of more than it.
  absl::StatusOr<std::vector<uint8_t>> Load(const TensorMapSpec& spec, const Coordinates& at) {
    const absl::StatusOr<CUtensorMap> encoded = EncodeTensorMap(driver_, spec);
    if (!encoded.ok()) return encoded.status();
    CUtensorMap map = *encoded;
    const CUdeviceptr out = memory_ + kTensorBytes;
    const CUdeviceptr flag = out + kTensorMapLoadWindow;
    TensorMapLoad load;
    load.out = std::bit_cast<uint8_t*>(out);
    load.timed_out = std::bit_cast<uint32_t*>(flag);
    std::copy(at.begin(), at.end(), load.at);
    load.rank = spec.rank;
    load.box_bytes = static_cast<uint32_t>(BoxBytes(spec));
    load.window_bytes = load.box_bytes + 256;
    if (load.window_bytes > kTensorMapLoadWindow) return absl::InternalError("a box too large");
    TETRAD_LOADER_TRY(MemsetD8Async(out, 0, kTensorMapLoadWindow + sizeof(uint32_t), nullptr));
    void* arguments[] = {&map, &load};
    TETRAD_LOADER_TRY(LaunchKernel(function_, 1, 1, 1, kTensorMapLoadThreads, 1, 1,
                                   kTensorMapLoadShared, nullptr, arguments, nullptr));
    if (const CUresult end = driver_.StreamSynchronize(nullptr); end != CUDA_SUCCESS) {
      return absl::AbortedError(absl::StrCat("the load: ", Name(end)));
    }
    std::vector<uint8_t> window(load.window_bytes);
    uint32_t timed_out = 0;
    TETRAD_LOADER_TRY(MemcpyDtoHAsync(window.data(), out, window.size(), nullptr));
    TETRAD_LOADER_TRY(MemcpyDtoHAsync(&timed_out, flag, sizeof(timed_out), nullptr));
    TETRAD_LOADER_TRY(StreamSynchronize(nullptr));
    if (timed_out != 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("the load: not the expected ", load.box_bytes, " bytes in a second"));
    }
    return window;
  }

  CUdeviceptr memory() const { return memory_; }
  const std::vector<uint8_t>& tensor() const { return tensor_; }

 private:
  std::string Name(CUresult result) const {
    const char* name = nullptr;
    driver_.GetErrorName(result, &name);
    return absl::StrCat(name == nullptr ? "error " : name, " (", static_cast<int>(result), ")");
  }

  const CudaDriver& driver_;
  CUdeviceptr memory_ = 0;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  std::vector<uint8_t> tensor_;
};

struct LoadedType {
  absl::string_view name;
  CUtensorMapDataType type;
  uint32_t bytes;
  uint64_t infinity;  // bits; 0: no NaN fill

  friend std::ostream& operator<<(std::ostream& out, const LoadedType& type) {
    return out << type.name;
  }
};
constexpr LoadedType kLoadedTypes[] = {
    {"UINT8", CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 0},
    {"UINT16", CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, 0},
    {"FLOAT16", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, 0x7C00},
    {"BFLOAT16", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, 0x7F80},
    {"INT32", CU_TENSOR_MAP_DATA_TYPE_INT32, 4, 0},
    {"FLOAT32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 0x7F800000},
    {"UINT64", CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, 0},
    {"FLOAT64", CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, 0x7FF0000000000000},
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
    const uint32_t loaded = 1 + random.Below(std::min(rows, i == 1 ? 64u : 6u));
    rows /= loaded;
    if (element_strides) spec.element_strides[i] = 1 + random.Below(4);
    spec.box[i] = loaded * spec.element_strides[i];
  }
  if (type.infinity != 0) spec.oob_fill = static_cast<CUtensorMapFloatOOBfill>(random.Below(2));
  return spec;
}

// Mostly inside; else from all before the tensor to all behind it. In dimension 0
// by 16 bytes: tensor_map.h.
Coordinates SomeCoordinates(Random& random, const TensorMapSpec& spec, const LoadedType& type) {
  Coordinates at = {};
  for (uint32_t i = 0; i < spec.rank; ++i) {
    const auto step = static_cast<int32_t>(i == 0 ? 16 / type.bytes : 1);
    const int32_t box = static_cast<int32_t>(spec.box[i]) / step;
    const int32_t last = (static_cast<int32_t>(spec.dims[i]) - 1) / step;
    at[i] = step * (random.OneIn(4) ? random.Between(-box, last + 2) : random.Between(0, last));
  }
  return at;
}

// What a loaded window has that the map does not mean; empty if nothing.
std::string Difference(const TensorMapSpec& spec, const LoadedType& type, const Coordinates& at,
                       const std::vector<uint8_t>& tensor, const std::vector<uint8_t>& window) {
  std::array<uint32_t, 5> counts = {1, 1, 1, 1, 1};
  for (uint32_t i = 0; i < spec.rank; ++i) counts[i] = spec.box[i] / spec.element_strides[i];
  const uint32_t elements = counts[0] * counts[1] * counts[2] * counts[3] * counts[4];
  for (uint32_t element = 0; element < elements; ++element) {
    uint64_t source = 0;
    bool inside = true;
    uint32_t rest = element;
    for (uint32_t i = 0; i < spec.rank; ++i) {
      const int64_t index = at[i] + int64_t{rest % counts[i]} * spec.element_strides[i];
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
      if (magnitude > type.infinity) continue;
      return absl::StrCat("element ", element, ", out of bounds, is no NaN: ", absl::Hex(loaded));
    }
    if (loaded != expected) {
      return absl::StrCat("element ", element, inside ? "" : ", out of bounds,", " is ",
                          absl::Hex(loaded), " and not ", absl::Hex(expected));
    }
  }
  for (size_t i = size_t{elements} * type.bytes; i < window.size(); ++i) {
    if (window[i] != kUntouched) return absl::StrCat("byte ", i, " beyond the box is written");
  }
  return "";
}

std::string Case(const TensorMapSpec& spec, const Coordinates& at) {
  return absl::StrCat(DescribeTensorMap(spec), " at=", absl::StrJoin(at, ","),
                      " box bytes=", BoxBytes(spec));
}

// All of one type and swizzle; the exit status of the process.
int RunLoads(const CudaDriver& driver, const LoadedType& type, CUtensorMapSwizzle swizzle,
             bool element_strides) {
  Loader loader(driver);
  if (const absl::Status status = loader.Prepare(); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  Random random(8);
  int loads = 0, different = 0;
  for (uint32_t rank = 1; rank <= 5; ++rank) {
    for (int repeat = 0; repeat < 12; ++repeat) {
      TensorMapSpec spec = SmallMap(random, type, swizzle, rank, element_strides);
      spec.address = loader.memory();
      // The plainest ones first.
      const Coordinates at = repeat < 2 ? Coordinates{} : SomeCoordinates(random, spec, type);
      const absl::StatusOr<std::vector<uint8_t>> window = loader.Load(spec, at);
      if (!window.ok()) {
        std::cerr << window.status() << "\nafter " << loads << " loads: " << Case(spec, at) << "\n";
        return 1;
      }
      ++loads;
      const std::string difference = Difference(spec, type, at, loader.tensor(), *window);
      if (!difference.empty() && ++different <= 3) {
        std::cerr << difference << ": " << Case(spec, at) << "\n";
      }
    }
  }
  if (different != 0) std::cerr << different << " of " << loads << " loads differ\n";
  return different == 0 ? 0 : 1;
}

// A coordinate that is no multiple of 16 bytes in dimension 0: illegal, as observed.
int RunMisaligned(const CudaDriver& driver) {
  Loader loader(driver);
  absl::Status status = loader.Prepare();
  if (status.ok()) {
    TensorMapSpec spec;
    spec.address = loader.memory();
    spec.rank = 2;
    spec.dims = {256, 8};
    spec.strides = {256};
    spec.box = {64, 4};
    status = loader.Load(spec, {16, 1}).status();
    std::cerr << "at=16,1: " << status << "\n";
    if (!status.ok()) return 1;
    status = loader.Load(spec, {8, 1}).status();
  }
  std::cerr << "at=8,1: " << status << "\n";
  return absl::IsAborted(status) ? 0 : 1;
}

// CTest knows a skipped program by these words (cmake/Cuda.cmake).
constexpr char kNoDevice[] = "no device: every test is skipped ";

class TensorMapLoadGpuTest : public ::testing::Test {
 protected:
  // Without a context: the process that loads has one.
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    absl::StatusOr<CudaDriver> loaded = LoadCudaDriver();
    if (!loaded.ok()) GTEST_SKIP() << kNoDevice << loaded.status();
    driver_ = *loaded;
    int devices = 0, major = 0;
    ASSERT_EQ(driver_.DeviceGetCount(&devices), CUDA_SUCCESS);
    if (devices == 0) GTEST_SKIP() << kNoDevice;
    CUdevice device = 0;
    ASSERT_EQ(driver_.DeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(
        driver_.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        CUDA_SUCCESS);
    if (major != 9) GTEST_SKIP() << "the kernel that loads is compiled for 9.0";
  }

  CudaDriver driver_;
};

using LoadCase = std::tuple<LoadedType, int, bool>;
class TensorMapLoadsGpuTest : public TensorMapLoadGpuTest,
                              public ::testing::WithParamInterface<LoadCase> {};

TEST_P(TensorMapLoadsGpuTest, AreWhatTheMapSays) {
  const auto& [type, swizzle, element_strides] = GetParam();
  EXPECT_EXIT(std::_Exit(RunLoads(driver_, type, static_cast<CUtensorMapSwizzle>(swizzle),
                                  element_strides)),
              ::testing::ExitedWithCode(0), "");
}

std::string CaseName(const ::testing::TestParamInfo<LoadCase>& info) {
  const auto& [type, swizzle, element_strides] = info.param;
  return absl::StrCat(type.name, "Swizzle", swizzle == 0 ? 0 : 16 << swizzle,
                      element_strides ? "Strided" : "");
}
INSTANTIATE_TEST_SUITE_P(All, TensorMapLoadsGpuTest,
                         ::testing::Combine(::testing::ValuesIn(kLoadedTypes),
                                            ::testing::Range(0, CU_TENSOR_MAP_SWIZZLE_128B + 1),
                                            ::testing::Bool()),
                         CaseName);

TEST_F(TensorMapLoadGpuTest, ARowCoordinateWithinSixteenBytesIsIllegal) {
  EXPECT_EXIT(std::_Exit(RunMisaligned(driver_)), ::testing::ExitedWithCode(0),
              "at=8,1: .*CUDA_ERROR_ILLEGAL_INSTRUCTION");
}

}  // namespace
}  // namespace tetrad::cuda
