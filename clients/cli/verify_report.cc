// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/verify_report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "clients/cli/exit_code.h"

namespace tetrad::cli {
namespace {

constexpr auto kRight = Table::Align::kRight;

std::string Coverage(const VerifyLine& line) {
  if (line.compared == line.elements) return "all";
  if (line.elements == 0) return "0";
  return absl::StrFormat("%.1f%%", 100.0 * line.compared / line.elements);
}

}  // namespace

nlohmann::json ToJson(const VerifyLine& line) {
  nlohmann::json json = {{"shape", line.shape},       {"description", line.description},
                         {"kernel", line.kernel},     {"device_us", line.device_us},
                         {"floor_us", line.floor_us}, {"share", line.share},
                         {"check", line.check},       {"compared", line.compared},
                         {"elements", line.elements}};
  // JSON has no infinity, which is what an element with other bits is worth.
  json["worst"] = std::isfinite(line.worst) ? nlohmann::json(line.worst) : nlohmann::json("inf");
  if (!line.pass) {
    json["failure"] = line.failure;
    json["reproduce"] = line.reproduce;
  }
  return json;
}

VerifyReport::VerifyReport(const Output& output, bool show_passes)
    : output_(output),
      show_passes_(show_passes),
      table_({{"shape"},
              {"kernel"},
              {"device us", kRight},
              {"floor us", kRight},
              {"share", kRight},
              {"check"},
              {"worst", kRight},
              {"compared", kRight},
              {"what"}}) {}

void VerifyReport::Add(const VerifyLine& line) {
  ++verified_;
  failed_ += line.pass ? 0 : 1;
  compared_ += line.compared;
  if (output_.json) {
    output_.PrintJson(ToJson(line));
    return;
  }
  if (show_passes_ || !line.pass) {
    table_.AddRow({line.shape, line.kernel, FormatNumber(line.device_us),
                   FormatNumber(line.floor_us), FormatNumber(line.share), line.check,
                   FormatNumber(line.worst), Coverage(line), line.description});
  }
  if (!line.pass) {
    absl::StrAppend(&failures_, "FAILED ", line.shape, " (", line.description, "): ", line.failure,
                    "\n  reproduce: ", line.reproduce, "\n");
  }
}

int VerifyReport::Finish(absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (output_.json) {
    output_.PrintJson({{"summary",
                        {{"verified", verified_},
                         {"failed", failed_},
                         {"elements", compared_},
                         {"seconds", seconds}}}});
  } else {
    if (table_.rows() > 0) output_.PrintText(table_.Render());
    output_.PrintText(failures_);
    output_.PrintText(absl::StrCat(verified_ - failed_, " of ", verified_, " verified, ", compared_,
                                   " elements compared in ", FormatDuration(seconds),
                                   failed_ == 0 ? "\n" : ": FAILED\n"));
  }
  return failed_ == 0 ? kExitOk : kExitVerificationFailed;
}

}  // namespace tetrad::cli
