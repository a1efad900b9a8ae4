// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsHeader: the table of tensors at the front of a safetensors file, fully validated.
//
// After Parse() succeeds every tensor lies inside the data, no two overlap, no byte is unaccounted
// for, and each tensor's bytes agree with its type and shape; nothing below needs to check again.
// Every violation is INVALID_ARGUMENT with its own reason and the tensor's name. Names and shapes
// are stored packed, so parsing never takes more than ten times the header's own bytes, whatever
// the header says, and commonly twice. Immutable after Parse(): thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/checkpoint/dtype.h"

namespace tetrad {

// The format's own limit on the header's length.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// One tensor of a header; name and shape point into the header.
struct TensorInfo {
  std::string_view name;
  Dtype dtype;
  std::span<const uint64_t> shape;
  uint64_t begin;  // first byte, counted from the start of the data
  uint64_t end;    // one past the last

  uint64_t bytes() const { return end - begin; }
};

// The shape as "[4, 96, 64]", at most eight dimensions spelled out.
std::string ShapeText(std::span<const uint64_t> shape);

class SafetensorsHeader {
 public:
  // Parses the JSON text `json` of a file whose data section has `data_bytes` bytes.
  static absl::StatusOr<SafetensorsHeader> Parse(std::string_view json, uint64_t data_bytes);

  // Tensors, in order of their names.
  size_t size() const { return entries_.size(); }
  TensorInfo tensor(size_t index) const;

  std::optional<TensorInfo> Find(std::string_view name) const;

 private:
  friend class SafetensorsHeaderParser;

  struct Entry {
    uint64_t begin;
    uint64_t end;
    uint32_t name_begin;  // in names_, whose length the header's limit keeps below 2^32
    uint32_t name_bytes;
    uint32_t shape_begin;  // in shapes_, likewise
    uint32_t rank;
    Dtype dtype;
  };

  std::string_view NameOf(const Entry& entry) const;

  std::vector<Entry> entries_;
  std::string names_;
  std::vector<uint64_t> shapes_;
};

}  // namespace tetrad
