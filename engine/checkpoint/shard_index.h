// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ShardIndex: which file of a sharded checkpoint holds which tensor, as
// model.safetensors.index.json says.
//
// The index decides what belongs to the checkpoint; whether the files agree is the caller's
// question. A malformed index or a tensor listed twice is INVALID_ARGUMENT. Immutable after
// Parse(): thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tetrad {

class ShardIndex {
 public:
  static absl::StatusOr<ShardIndex> Parse(std::string_view json);

  // File names, sorted, each once.
  const std::vector<std::string>& shards() const { return shards_; }

  // (tensor, position in shards()), in order of the names.
  const std::vector<std::pair<std::string, uint32_t>>& tensors() const { return tensors_; }

  // The shard of a tensor, as a position in shards().
  std::optional<uint32_t> ShardOf(std::string_view tensor) const;

 private:
  std::vector<std::string> shards_;
  std::vector<std::pair<std::string, uint32_t>> tensors_;
};

}  // namespace tetrad
