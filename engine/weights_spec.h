// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WeightsSpec: what a client says of weights before their bytes come, and how a
// version of them is named afterwards. Plain values. Errors are INVALID_ARGUMENT
// and name group, field, value and limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/signature.h"

namespace tetrad {

struct WeightsSpec {
  std::string name;  // [A-Za-z0-9._/-]{1,128}
  std::vector<GroupDims> groups;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  std::vector<float> alpha;        // per group, finite; empty: 1
  std::vector<float> input_scale;  // per group where a checkpoint has one; informative
  std::string source;              // for listings
};

absl::Status ValidateWeightsSpec(const WeightsSpec& spec);

// `name` or `name@version`; a view of the text it was parsed from.
struct WeightsReference {
  std::string_view name;
  std::optional<int64_t> version;
};
absl::StatusOr<WeightsReference> ParseWeightsReference(std::string_view text);

}  // namespace tetrad
