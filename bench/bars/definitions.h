// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The figures Tetrad is held to, as bench/bars.tsv states them: a plain table.
// INVALID_ARGUMENT names the line that is not one. Pure but for reading the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tetrad::bars {

// kMax, kMin: must hold. The goals are aimed at: reported, never hidden.
enum class Kind : uint8_t { kMax = 0, kMin = 1, kGoalMax = 2, kGoalMin = 3 };

struct Bar {
  std::string id;
  Kind kind = Kind::kMax;
  double limit = 0;
  std::string unit;
};

constexpr bool IsMust(Kind kind) { return kind == Kind::kMax || kind == Kind::kMin; }
// False for NaN.
bool Holds(const Bar& bar, double value);

absl::StatusOr<std::vector<Bar>> ParseBars(std::string_view text);
// NOT_FOUND where there is no such file.
absl::StatusOr<std::vector<Bar>> ReadBars(const std::string& path);

}  // namespace tetrad::bars
