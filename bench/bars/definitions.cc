// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/definitions.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr std::array<std::string_view, 4> kKinds = {"max", "min", "goal-max", "goal-min"};

absl::StatusOr<Bar> ParseBar(absl::string_view line) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  if (fields.size() != 5) {
    return absl::InvalidArgumentError(absl::StrCat(fields.size(), " fields, wanted 5"));
  }
  Bar bar{.id = fields[0], .unit = fields[3]};
  const auto kind = std::find(kKinds.begin(), kKinds.end(), fields[1]);
  if (kind == kKinds.end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown kind '", fields[1], "'"));
  }
  bar.kind = static_cast<Kind>(kind - kKinds.begin());
  if (!absl::SimpleAtod(fields[2], &bar.limit)) {
    return absl::InvalidArgumentError(absl::StrCat("limit '", fields[2], "' is no number"));
  }
  return bar;
}

}  // namespace

bool Holds(const Bar& bar, double value) {
  const bool at_most = bar.kind == Kind::kMax || bar.kind == Kind::kGoalMax;
  return at_most ? value <= bar.limit : value >= bar.limit;
}

absl::StatusOr<std::vector<Bar>> ParseBars(std::string_view text) {
  std::vector<Bar> bars;
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    auto bar = ParseBar(line);
    if (bar.ok() && std::ranges::find(bars, bar->id, &Bar::id) != bars.end()) {
      bar = absl::InvalidArgumentError(absl::StrCat(bar->id, " stands here twice"));
    }
    if (!bar.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", bar.status().message()));
    }
    bars.push_back(*std::move(bar));
  }
  return bars;
}

absl::StatusOr<std::vector<Bar>> ReadBars(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  auto bars = ParseBars(text.str());
  if (bars.ok()) return bars;
  return absl::Status(bars.status().code(), absl::StrCat(path, ": ", bars.status().message()));
}

}  // namespace tetrad::bars
