// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// VerifyReport: collects the lines of a verification and prints them: with
// --json each line as it comes and a summary at the end (JSON lines), for
// people one table at the end. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

#include "clients/cli/output.h"
#include "clients/cli/table.h"

namespace tetrad::cli {

struct VerifyLine {
  std::string shape;
  std::string description;
  std::string kernel;
  double device_us = 0;
  double floor_us = 0;
  double share = 0;
  // "bit-equal", "within bound", both joined by ", ", or "FAILED".
  std::string check;
  // The largest error as a share of what is allowed; 0 where bits are equal.
  double worst = 0;
  int64_t compared = 0;  // elements
  int64_t elements = 0;
  std::string failure;    // why it failed
  std::string reproduce;  // command that repeats this line alone
  bool pass = false;
};

class VerifyReport {
 public:
  // Lines that pass are shown if `show_passes`; those that fail always.
  VerifyReport(const Output& output, bool show_passes);

  void Add(const VerifyLine& line);
  // Prints what is left; the exit code of the verification.
  int Finish(absl::Duration elapsed);

  int64_t verified() const { return verified_; }  // lines added

 private:
  const Output& output_;
  const bool show_passes_;
  Table table_;
  std::string failures_;
  int64_t verified_ = 0;
  int64_t failed_ = 0;
  int64_t compared_ = 0;
};

nlohmann::json ToJson(const VerifyLine& line);

}  // namespace tetrad::cli
