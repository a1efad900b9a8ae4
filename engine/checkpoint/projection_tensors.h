// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ProjectionTensors: finds the tensors that make up one projection, by name alone.
//
// A pattern names a linear layer, "model.layers.3.mlp.experts.{expert}.up_proj", and stands for
// all experts 0..G-1; without {expert} it names one layer, or one fused parameter that holds all
// experts. Names that belong to the layer but whose meaning is unknown are refused, because a
// factor left out gives plausible garbage. Everything found here still has to be checked for type,
// shape and value. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/dialect.h"

namespace tetrad {

inline constexpr std::string_view kExpertPlaceholder = "{expert}";

enum class ProjectionRole : uint8_t { kCodes, kScales, kGlobalScale, kInputScale };
inline constexpr int kProjectionRoles = 4;

// The tensors of one expert; only an input scale may be absent.
struct ExpertTensors {
  std::array<std::optional<CheckpointTensor>, kProjectionRoles> by_role;

  const CheckpointTensor& at(ProjectionRole role) const {
    return *by_role[static_cast<size_t>(role)];
  }
  bool has(ProjectionRole role) const { return by_role[static_cast<size_t>(role)].has_value(); }
};

struct ProjectionTensors {
  Dialect dialect = Dialect::kAuto;  // never kAuto when returned
  bool has_placeholder = false;
  std::vector<ExpertTensors> experts;  // by number; one where the pattern has no {expert}
  std::vector<std::string> notes;
};

// `wanted` other than kAuto insists on a dialect. NOT_FOUND where the pattern matches nothing.
absl::StatusOr<ProjectionTensors> FindProjection(const Checkpoint& checkpoint,
                                                 std::string_view pattern, Dialect wanted);

struct ProjectionName {
  std::string pattern;
  int64_t layers = 0;  // that share the pattern: experts, or 1

  bool operator==(const ProjectionName&) const = default;
};

// Every pattern of the checkpoint that has block scales, in order of the names.
std::vector<ProjectionName> ListProjections(const Checkpoint& checkpoint);

}  // namespace tetrad
