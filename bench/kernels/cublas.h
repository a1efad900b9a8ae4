// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Cublas: the machine's cuBLAS, found at run time, for 16-bit products with FP32
// sums and 16-bit outputs. It is what floors are measured with and a peer; nothing
// links it. It uses the primary context, which is the engine's.
//
// One thread; streams and memory are the caller's. All work can be captured once
// the same call was made before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cuda.h>

#include "absl/status/statusor.h"

#include "kernels/problem.h"

namespace tetrad::bars {

// C[m, n] = A[m, k] * B[n, k]^T, all dense and row-major, of one group.
struct CublasProduct {
  int32_t m = 0, n = 0, k = 0;
  CUdeviceptr a = 0, b = 0, c = 0;
};

class Cublas {
 public:
  // FAILED_PRECONDITION where there is none: neither on the loader's path nor in a
  // toolkit's folder nor with the packages of python3.
  static absl::StatusOr<Cublas> Load();
  const std::string& path() const { return path_; }

  // One handle works for one stream at a time; `workspace` is its own, or nothing.
  using Handle = void*;
  absl::StatusOr<Handle> Create() const;
  void Destroy(Handle handle) const;
  absl::Status SetStream(Handle handle, CUstream stream) const;
  absl::Status SetWorkspace(Handle handle, CUdeviceptr workspace, int64_t bytes) const;

  // `b_rows`: B lies as [n, k]; else as [k, n].
  absl::Status Multiply(Handle handle, ActivationType type, const CublasProduct& product,
                        bool b_rows = true) const;
  // A product each in one call. `pointers`: device memory with the addresses of all B,
  // then all A, then all C.
  absl::Status MultiplyGrouped(Handle handle, ActivationType type,
                               std::span<const CublasProduct> products, CUdeviceptr pointers) const;
  bool has_grouped() const { return grouped_ != nullptr; }

 private:
  // As cublas_api.h declares them; every enumeration is an int there.
  using Status = int;
  using CreateCall = Status (*)(Handle*);
  using DestroyCall = Status (*)(Handle);
  using StreamCall = Status (*)(Handle, CUstream);
  using WorkspaceCall = Status (*)(Handle, void*, size_t);
  using GemmCall = Status (*)(Handle, int, int, int, int, int, const void*, const void*, int, int,
                              const void*, int, int, const void*, void*, int, int, int, int);
  using GroupedCall = Status (*)(Handle, const int*, const int*, const int*, const int*, const int*,
                                 const void*, const void* const*, int, const int*,
                                 const void* const*, int, const int*, const void*, void* const*,
                                 int, const int*, int, const int*, int);

  std::string path_;
  CreateCall create_ = nullptr;
  DestroyCall destroy_ = nullptr;
  StreamCall set_stream_ = nullptr;
  WorkspaceCall set_workspace_ = nullptr;
  GemmCall gemm_ = nullptr;
  GroupedCall grouped_ = nullptr;  // since 12.5
};

// Where cuBLAS may lie, best first: names for the loader, then files.
std::vector<std::string> CublasCandidates();

}  // namespace tetrad::bars
