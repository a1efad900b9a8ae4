// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace tetrad::cuda {
namespace {

// Expands `symbol` first: the headers map cuMemAlloc to cuMemAlloc_v2.
#define TETRAD_SYMBOL_TEXT_INNER(symbol) #symbol
#define TETRAD_SYMBOL_TEXT(symbol) TETRAD_SYMBOL_TEXT_INNER(symbol)

// The name under which the driver's package installs it; its -dev name, without
// the number, exists only where one compiles.
constexpr char kLibrary[] = "libcuda.so.1";

}  // namespace

absl::StatusOr<CudaDriver> LoadCudaDriver() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("no CUDA driver: ", ::dlerror()));
  }
  CudaDriver driver;
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(library, symbol));
    if (member == nullptr && missing == nullptr) missing = symbol;
  };
#define TETRAD_CUDA_FIND(member, symbol) find(driver.member, TETRAD_SYMBOL_TEXT(symbol));
  TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_FIND)
#undef TETRAD_CUDA_FIND
  if (missing != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the CUDA driver is too old: ", kLibrary, " has no ", missing,
        "; this build needs one for CUDA ", CUDA_VERSION / 1000, ".", CUDA_VERSION % 1000 / 10));
  }
  if (const CUresult result = driver.Init(0); result != CUDA_SUCCESS) {
    const char* name = nullptr;
    driver.GetErrorName(result, &name);
    return absl::FailedPreconditionError(
        absl::StrCat("cuInit: ", name != nullptr ? name : "unknown error"));
  }
  return driver;
}

}  // namespace tetrad::cuda
