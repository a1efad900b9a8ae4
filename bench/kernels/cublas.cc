// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/cublas.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "bench/kernels/child_program.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

// Of cublas_api.h and library_types.h.
constexpr int kOpN = 0, kOpT = 1, kCompute32F = 68, kGemmDefault = -1;
constexpr int kR16F = 2, kR16BF = 14;

constexpr const char* kNames[] = {"libcublas.so.13", "libcublas.so.12"};
constexpr float kOne = 1, kZero = 0;
constexpr char kNvidiaFolders[] =
    "import importlib.util as u; s = u.find_spec('nvidia');"
    "print('\\n'.join(s.submodule_search_locations if s else []))";

int TypeOf(ActivationType type) { return type == ActivationType::kBf16 ? kR16BF : kR16F; }

void* PointerOf(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): so it wants it
}

absl::Status Check(int status, const char* call) {
  if (status == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": cuBLAS status ", status));
}

// Files below `folder` at most `depth` folders down, links not followed.
void Look(const std::filesystem::path& folder, int depth, std::vector<std::string>& found) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::find(kNames, name) != std::end(kNames)) found.push_back(entry.path().string());
    if (depth > 0 && entry.is_directory(error)) Look(entry.path(), depth - 1, found);
  }
}

}  // namespace

std::vector<std::string> CublasCandidates() {
  std::vector<std::string> found;
  // The one PyTorch brings first: its peers use it.
  const auto folders = RunChild({"python3", "-c", kNvidiaFolders}, /*input=*/"");
  if (folders.ok()) {
    for (const absl::string_view folder : absl::StrSplit(*folders, '\n', absl::SkipEmpty())) {
      Look(std::string(folder), 2, found);
    }
  }
  found.insert(found.end(), std::begin(kNames), std::end(kNames));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/local", error)) {
    if (absl::StartsWith(entry.path().filename().string(), "cuda")) Look(entry.path(), 3, found);
  }
  return found;
}

absl::StatusOr<Cublas> Cublas::Load() {
  void* library = nullptr;
  std::string last = "none found";
  Cublas cublas;
  for (const std::string& candidate : CublasCandidates()) {
    // Its other half lies beside it, where the loader does not always look.
    std::string half = candidate;
    half.replace(half.rfind("libcublas"), 9, "libcublasLt");
    (void)::dlopen(half.c_str(), RTLD_NOW | RTLD_GLOBAL);
    library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    cublas.path_ = candidate;
    if (library != nullptr) break;
    last = ::dlerror();
  }
  if (library == nullptr) return absl::FailedPreconditionError(absl::StrCat("no cuBLAS: ", last));
  const auto find = [&](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
    return call != nullptr;
  };
  (void)find(cublas.grouped_, "cublasGemmGroupedBatchedEx");
  if (find(cublas.create_, "cublasCreate_v2") && find(cublas.destroy_, "cublasDestroy_v2") &&
      find(cublas.set_stream_, "cublasSetStream_v2") &&
      find(cublas.set_workspace_, "cublasSetWorkspace_v2") && find(cublas.gemm_, "cublasGemmEx")) {
    return cublas;
  }
  return absl::FailedPreconditionError(absl::StrCat(cublas.path_, " lacks an entry point"));
}

absl::StatusOr<Cublas::Handle> Cublas::Create() const {
  Handle handle = nullptr;
  TETRAD_RETURN_IF_ERROR(Check(create_(&handle), "cublasCreate"));
  return handle;
}

void Cublas::Destroy(Handle handle) const { (void)destroy_(handle); }

absl::Status Cublas::SetStream(Handle handle, CUstream stream) const {
  return Check(set_stream_(handle, stream), "cublasSetStream");
}

absl::Status Cublas::SetWorkspace(Handle handle, CUdeviceptr workspace, int64_t bytes) const {
  return Check(set_workspace_(handle, PointerOf(workspace), static_cast<size_t>(bytes)),
               "cublasSetWorkspace");
}

// cuBLAS counts columns first: C^T = B * A^T, in which B is what it calls A.
absl::Status Cublas::Multiply(Handle handle, ActivationType type, const CublasProduct& p,
                              bool b_rows) const {
  const int t = TypeOf(type);
  return Check(gemm_(handle, b_rows ? kOpT : kOpN, kOpN, p.n, p.m, p.k, &kOne, PointerOf(p.b), t,
                     b_rows ? p.k : p.n, PointerOf(p.a), t, p.k, &kZero, PointerOf(p.c), t, p.n,
                     kCompute32F, kGemmDefault),
               "cublasGemmEx");
}

absl::Status Cublas::MultiplyGrouped(Handle handle, ActivationType type,
                                     std::span<const CublasProduct> products,
                                     CUdeviceptr pointers) const {
  const int t = TypeOf(type);
  const size_t count = products.size();
  std::vector<int> m, n, k;
  for (const CublasProduct& p : products) {
    m.push_back(p.m);
    n.push_back(p.n);
    k.push_back(p.k);
  }
  const std::vector<int> trans(count, kOpT), plain(count, kOpN), ones(count, 1);
  const std::vector<float> alpha(count, kOne), beta(count, kZero);
  const auto table = [&](size_t which) {
    return static_cast<void**>(PointerOf(pointers + which * count * sizeof(CUdeviceptr)));
  };
  return Check(grouped_(handle, trans.data(), plain.data(), n.data(), m.data(), k.data(),
                        alpha.data(), table(0), t, k.data(), table(1), t, k.data(), beta.data(),
                        table(2), t, n.data(), static_cast<int>(count), ones.data(), kCompute32F),
               "cublasGemmGroupedBatchedEx");
}

}  // namespace tetrad::bars
