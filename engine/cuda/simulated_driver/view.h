// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// View (tests only): a simulated kernel's way to device memory. Every access is
// asked for here; the first illegal one, or what the kernel refuses, ends the launch
// with a reason.
//
// Not thread-safe; what it returns is valid as long as the address space is unchanged.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <cuda.h>

#include "engine/cuda/simulated_driver/address_space.h"
#include "kernels/problem.h"

namespace tetrad::cuda::simulated {

inline uint64_t GlobalTimer() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Device memory does not fault on a null base that nothing is read from, and
// arithmetic on it is the device's, not C++'s.
template <typename T>
T* Plus(T* base, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(bytes));
}

// A launch's view of memory: remembers the first illegal access.
class View {
 public:
  View(const AddressSpace& space, std::string* why) : space_(space), why_(why) {}

  template <typename T>
  const T* Read(const T* address, int64_t count) {
    CheckAlignment(address, count);
    return reinterpret_cast<const T*>(At(Address(address), count * Size<T>(), false));
  }
  template <typename T>
  T* Write(T* address, int64_t count) {
    CheckAlignment(address, count);
    return reinterpret_cast<T*>(At(Address(address), count * Size<T>(), true));
  }
  bool ok() const { return ok_; }
  void Refuse(std::string_view why) {
    if (ok_) *why_ = why;
    ok_ = false;
  }

 private:
  template <typename T>
  static constexpr int64_t Size() {
    if constexpr (std::is_void_v<T>) {
      return 1;
    } else {
      return static_cast<int64_t>(sizeof(T));
    }
  }
  template <typename T>
  void CheckAlignment(const T* address, int64_t count) {
    if constexpr (!std::is_void_v<T>) {
      if (count > 0 && Address(address) % alignof(T) != 0) Refuse("a misaligned address");
    }
  }
  std::byte* At(CUdeviceptr address, int64_t bytes, bool write) {
    if (bytes < 0) Refuse("a negative size");
    if (!ok_) return nullptr;
    if (bytes == 0) return reinterpret_cast<std::byte*>(address);  // nothing is touched
    std::byte* const result = space_.At(address, static_cast<size_t>(bytes), write, why_);
    if (result == nullptr) ok_ = false;
    return result;
  }

  const AddressSpace& space_;
  std::string* const why_;
  bool ok_ = true;
};

// Elements from the first to the last that a group writes.
inline int64_t OutputExtent(const ProblemTypes& types, const GroupProblem& group) {
  const bool rows = types.c_layout == OutputLayout::kRowMajor;
  return rows ? int64_t{group.m - 1} * group.c_stride + group.n
              : int64_t{group.n - 1} * group.c_stride + group.m;
}

}  // namespace tetrad::cuda::simulated
