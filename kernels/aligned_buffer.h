// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: owned bytes whose address is a multiple of 64, of exactly the
// size asked for, so that memory checkers see the first byte beyond. Movable;
// addresses survive a move. Contents are uninitialised.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace tetrad {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}))),
        bytes_(bytes) {}

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Delete {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<std::byte, Delete> data_;
  size_t bytes_ = 0;
};

}  // namespace tetrad
