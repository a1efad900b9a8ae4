// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables for people: columns as wide as their widest cell, text to the left,
// numbers to the right, no trailing blanks. Widths count code points, which is
// right for everything tetradctl prints. A plain value.
#pragma once

#include <string>
#include <vector>

namespace tetrad::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // Missing cells are empty, surplus ones are dropped.
  void AddRow(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }

  // Title line and rows, each ended by a newline. Control characters in cells
  // are shown as \xNN, so that one row is one line.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1536 -> "1.5 KiB".
std::string FormatBytes(int64_t bytes);
// Three or four significant digits, without an exponent where that stays readable.
std::string FormatNumber(double value);
// 93784 -> "1d 2h 3m".
std::string FormatDuration(double seconds);

}  // namespace tetrad::cli
