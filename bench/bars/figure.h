// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Figure: the code that measures one id of bench/bars.tsv.
//
// A figure opens the devices it needs, measures, and closes them again, so that
// none runs beside another. What it cannot measure is a status, whose message
// becomes the `reason` of a failed figure. Which element of which case is wrong
// goes to standard error as it is found.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tetrad::bars {

enum class DeviceKind : uint8_t { kCuda = 0, kCpu = 1 };

// A value and the spread of what it is the median of, see docs/benchmarks.md.
struct Measured {
  double value = 0;
  double low = 0;
  double high = 0;
  std::string remark;  // what missed the limit, where a number does not say it
};

// Measurements of a run from which more than one figure is made, under names of theirs.
using Memo = std::map<std::string, absl::StatusOr<Measured>>;

// What is measured, and with what beside it.
struct Setting {
  DeviceKind device = DeviceKind::kCuda;
  std::string uuid;                                       // of the device; with kCpu empty
  std::string programs;                                   // the folder of tetradd
  int threads = 1;                                        // of the reference
  std::shared_ptr<Memo> memo = std::make_shared<Memo>();  // of this run; never null
};

// Of something counted once.
Measured Counted(int64_t count, std::string remark = {});
// Of times in any order, at least one: their median and quartiles.
Measured MedianOf(std::vector<double> values);
double Median(std::vector<double> values);

using Figure = absl::StatusOr<Measured> (*)(const Setting& setting);

// Null if no code measures it.
Figure FindFigure(std::string_view id);
// The ids that code measures.
std::vector<std::string_view> MeasuredIds();

}  // namespace tetrad::bars
