// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tetrad::cli {
namespace {

constexpr size_t kColumnGap = 2;

std::string Printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(&result, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      result.push_back(c);
    }
  }
  return result;
}

size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(Width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], Width(row[c]));
  }
  std::string result;
  const auto render_line = [&](const auto& cell_at) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_at(c);
      const std::string padding(widths[c] - Width(cell), ' ');
      if (c > 0) line.append(kColumnGap, ' ');
      const bool right = columns_[c].align == Align::kRight;
      absl::StrAppend(&line, right ? padding : "", cell, right ? "" : padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&result, line, "\n");
  };
  render_line([this](size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) {
    render_line([&row](size_t c) -> const std::string& { return row[c]; });
  }
  return result;
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatNumber(double value) {
  const double magnitude = std::abs(value);
  if (!std::isfinite(value) || magnitude < 0.1) return absl::StrFormat("%.3g", value);
  if (magnitude >= 1e9) return absl::StrFormat("%.3e", value);
  int decimals = 3;
  for (double limit = 10; decimals > 0 && magnitude >= limit; limit *= 10) --decimals;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string FormatDuration(double seconds) {
  const auto total = static_cast<int64_t>(std::max(seconds, 0.0));
  const int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return absl::StrCat(days, "d ", hours, "h ", minutes, "m");
  if (hours > 0) return absl::StrCat(hours, "h ", minutes, "m");
  if (minutes > 0) return absl::StrCat(minutes, "m ", total % 60, "s");
  return absl::StrFormat("%.1fs", std::max(seconds, 0.0));
}

}  // namespace tetrad::cli
