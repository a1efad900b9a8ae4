// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExpectedValues: dequantised weights as the producer of a checkpoint wrote
// them, in a safetensors file of F32 tensors. With `{expert}` in the pattern
// each group is its own tensor [n, k]; without it one tensor [groups, n, k]
// holds them all. Deliberately a second, minimal reader that shares nothing
// with the daemon's loader. Owns the file's bytes; immutable once loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tetrad/v1/weights.pb.h"

namespace tetrad::cli {

class ExpectedValues {
 public:
  // One entry of `groups` per group. NOT_FOUND names a missing file or tensor,
  // INVALID_ARGUMENT a type or shape that differs, or a file that is broken.
  static absl::StatusOr<ExpectedValues> Load(const std::string& path, const std::string& pattern,
                                             const std::vector<v1::GroupDims>& groups);

  // Value of weight (row n, column k) of a group.
  float at(size_t group, int64_t n, int64_t k) const;

 private:
  struct Group {
    size_t offset = 0;  // of its first value, bytes into `bytes_`
    int64_t k = 0;
  };
  std::string bytes_;
  std::vector<Group> groups_;
};

}  // namespace tetrad::cli
