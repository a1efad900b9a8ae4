// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads one projection of a checkpoint into the weights registry, group by
// group: host memory is needed for one group at a time. A load that fails or
// is stopped leaves nothing behind. Blocks on files; knows no RPC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "engine/checkpoint/dialect.h"
#include "engine/checkpoint/root.h"
#include "engine/weights.h"

namespace tetrad {

struct CheckpointSource {
  std::string directory;
  std::string pattern;
  Dialect dialect = Dialect::kAuto;
  bool ignore_input_scales = false;
};

struct CheckpointWeights {
  WeightsInfo info;
  std::vector<std::string> notes;
};

// Called before each group and at the end; false stops the load (CANCELLED).
using LoadObserver = absl::FunctionRef<bool(int64_t bytes_done, int64_t bytes_total)>;

absl::StatusOr<CheckpointWeights> LoadCheckpoint(const Root& root, const CheckpointSource& source,
                                                 const std::string& name, WeightsRegistry& registry,
                                                 LoadObserver observe);

}  // namespace tetrad
