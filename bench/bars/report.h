// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A figure's line: what was measured, whether the limit holds, and by what on
// which machine. One JSON object:
//
//   id value spread unit limit ok device driver clocks binary_sha256 commit date
//
// `value` and `spread` (a pair) are null where nothing was measured, and
// `reason` says why; it stands too beside a value that misses its limit if more
// is known of it. `clocks` are those right after the measurement, in MHz, or
// "unknown". Pure but for the clock and files read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "bench/bars/definitions.h"
#include "bench/bars/figure.h"
#include "bench/bars/nvml.h"

namespace tetrad::bars {

// What every line of a run says alike.
struct Provenance {
  std::string device;
  std::string driver;
  std::string binary_sha256;
  std::string commit;
  std::string date;  // UTC, YYYY-MM-DD
};

nlohmann::ordered_json LineOf(const Bar& bar, const absl::StatusOr<Measured>& measured,
                              const Provenance& provenance, const std::optional<Clocks>& clocks);

// Of a file's bytes, in hexadecimal.
absl::StatusOr<std::string> Sha256(const std::string& path);

}  // namespace tetrad::bars
