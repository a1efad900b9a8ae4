// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/value_syntax.h"

#include <charconv>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"

namespace tetrad::cli {
namespace {

absl::Status Refuse(std::string_view text, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::string_view(text.data(), text.size()), "': expected ",
                   absl::string_view(expected.data(), expected.size())));
}

template <typename Integer>
std::optional<Integer> ParseInteger(std::string_view text, Integer low, Integer high) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < low || value > high) return std::nullopt;
  return value;
}

// The part before the first `separator`, which is taken off `text` with it.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseRows(std::string_view text) {
  constexpr std::string_view kExpected =
      "rows per group, as in 1,2,3 or 128x8 (eight groups of 128), each 0 to 2147483647";
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> rows;
  std::string_view rest = text;
  bool more = true;
  while (more) {
    more = rest.find(',') != std::string_view::npos;
    std::string_view item = TakeUntil(rest, ',');
    const bool repeated = item.find('x') != std::string_view::npos;
    const auto value = ParseInteger<int32_t>(TakeUntil(item, 'x'), 0, kMax);
    const auto times = repeated ? ParseInteger<int64_t>(item, 1, kMaxGroups) : int64_t{1};
    if (!value || !times) return Refuse(text, kExpected);
    if (static_cast<int64_t>(rows.size()) + *times > kMaxGroups) {
      return Refuse(text, absl::StrCat("at most ", kMaxGroups, " groups"));
    }
    rows.insert(rows.end(), static_cast<size_t>(*times), *value);
  }
  return rows;
}

absl::StatusOr<v1::Capacity> ParseCapacity(std::string_view text) {
  constexpr std::string_view kExpected = "offsets:ROWS (in total) or counts:ROWS (per group)";
  std::string_view rest = text;
  const std::string_view source = TakeUntil(rest, ':');
  v1::Capacity capacity;
  if (source == "offsets") {
    capacity.set_m_source(v1::M_SOURCE_OFFSETS);
  } else if (source == "counts") {
    capacity.set_m_source(v1::M_SOURCE_COUNTS);
  } else {
    return Refuse(text, kExpected);
  }
  const auto rows = ParseInteger<int64_t>(rest, 1, std::numeric_limits<int32_t>::max());
  if (!rows) return Refuse(text, kExpected);
  capacity.set_rows(*rows);
  return capacity;
}

absl::StatusOr<Shapes> ParseShapes(std::string_view text) {
  constexpr std::string_view kExpected =
      "contest, contest-tests, decode, prefill, random:SEED:COUNT or weights:NAME";
  std::string_view rest = text;
  const std::string_view kind = TakeUntil(rest, ':');
  Shapes shapes;
  if (kind == "random") {
    const auto seed =
        ParseInteger<uint64_t>(TakeUntil(rest, ':'), 0, std::numeric_limits<uint64_t>::max());
    const auto count = ParseInteger<int64_t>(rest, 1, std::numeric_limits<int32_t>::max());
    if (!seed || !count) return Refuse(text, "random:SEED:COUNT with COUNT >= 1");
    shapes.set = ShapeSet::kRandom;
    shapes.seed = *seed;
    shapes.count = *count;
    return shapes;
  }
  if (kind == "weights") {
    if (rest.empty()) return Refuse(text, "weights:NAME or weights:NAME@VERSION");
    shapes.set = ShapeSet::kWeights;
    shapes.weights = rest;
    return shapes;
  }
  if (text == "contest") return shapes;
  if (text == "contest-tests") {
    shapes.set = ShapeSet::kContestTests;
  } else if (text == "decode") {
    shapes.set = ShapeSet::kDecode;
  } else if (text == "prefill") {
    shapes.set = ShapeSet::kPrefill;
  } else {
    return Refuse(text, kExpected);
  }
  return shapes;
}

}  // namespace tetrad::cli
