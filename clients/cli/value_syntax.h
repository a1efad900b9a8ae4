// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The small languages inside option values: lists of rows (`1,2,3`, `128x8` for
// eight times 128), capacities (`counts:64`) and sets of shapes
// (`random:SEED:COUNT`). Errors are INVALID_ARGUMENT and show the value and
// what is accepted. Stateless.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "clients/cli/arguments.h"

namespace tetrad::cli {

inline constexpr int64_t kMaxGroups = 1 << 20;

absl::StatusOr<std::vector<int32_t>> ParseRows(std::string_view text);
absl::StatusOr<v1::Capacity> ParseCapacity(std::string_view text);

struct Shapes {
  ShapeSet set = ShapeSet::kContest;
  uint64_t seed = 0;
  int64_t count = 0;
  std::string weights;
};
absl::StatusOr<Shapes> ParseShapes(std::string_view text);

}  // namespace tetrad::cli
