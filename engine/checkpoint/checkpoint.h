// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: the tensors of one model folder, over all its files.
//
// A folder holds either model.safetensors.index.json and the shards it names, or one
// model.safetensors. The index decides: a shard that is not there, a tensor that is in another
// shard than the index says, in none, or in a shard but not in the index, is refused, and a
// single-file copy beside an index is ignored and noted. Files stay open as long as the
// checkpoint, so what was checked is what is read. Immutable after Open(): thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/checkpoint/dialect.h"
#include "engine/checkpoint/root.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/shard_index.h"

namespace tetrad {

// A tensor and the file that holds it; valid as long as the checkpoint.
struct CheckpointTensor {
  const SafetensorsFile* file;
  TensorInfo info;
};

class Checkpoint {
 public:
  // `directory` is relative to `root`; "" is the root itself.
  static absl::StatusOr<Checkpoint> Open(const Root& root, std::string_view directory);

  std::optional<CheckpointTensor> Find(std::string_view name) const;

  // Calls `visit` for every tensor, file by file.
  absl::Status ForEach(absl::FunctionRef<absl::Status(const CheckpointTensor&)> visit) const;

  // What config.json or hf_quant_config.json says, and which of them.
  Dialect declared_dialect() const { return declared_dialect_; }
  const std::string& declared_by() const { return declared_by_; }

  // What an operator should know though nothing was refused.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  absl::Status OpenShards(const Root& root, std::string_view directory, const ShardIndex& index);
  absl::Status CheckIndex(const ShardIndex& index) const;
  absl::Status ReadDeclaration(const Root& root, std::string_view directory, const char* name);

  std::vector<SafetensorsFile> files_;
  Dialect declared_dialect_ = Dialect::kAuto;
  std::string declared_by_;
  std::vector<std::string> notes_;
};

}  // namespace tetrad
