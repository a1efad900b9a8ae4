// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
//   tetrad-bars [--device cuda|cpu] [--only PREFIX] [--bars FILE] [--out FILE]
//
// Measures every figure of bench/bars.tsv whose id begins with PREFIX and prints
// one JSON line for each (report.h), in the order of the file. One that cannot
// be measured is a failed one with its reason; none is left out. Exit status 0:
// every figure that must hold does; 1: one does not; 2: nothing was measured.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/bars/bench_device.h"
#include "bench/bars/definitions.h"
#include "bench/bars/figure.h"
#include "bench/bars/nvml.h"
#include "bench/bars/report.h"
#include "bench/bars/version.h"

namespace tetrad::bars {
namespace {

constexpr int kAllHold = 0, kOneDoesNot = 1, kNothingMeasured = 2;

struct Arguments {
  std::string device = "cuda";
  std::string only;
  std::string bars;
  std::string out;
};

absl::StatusOr<Measured> Measure(const Bar& bar, const Setting& setting,
                                 const absl::Status& device) {
  const Figure figure = FindFigure(bar.id);
  if (figure == nullptr) {
    return absl::UnimplementedError("no code of this build measures this figure");
  }
  if (!device.ok()) return device;
  std::fprintf(stderr, "tetrad-bars: %s\n", bar.id.c_str());
  return figure(setting);
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "tetrad-bars: %s\n", what.c_str());
  return kNothingMeasured;
}

int Run(const Arguments& arguments) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(absl::StrCat("/proc/self/exe: ", error.message()));
  const std::string programs = program.parent_path().string();
  const auto bars =
      ReadBars(arguments.bars.empty() ? programs + "/../share/bars.tsv" : arguments.bars);
  if (!bars.ok()) return Fail(std::string(bars.status().message()));
  std::vector<Bar> chosen;
  std::ranges::copy_if(*bars, std::back_inserter(chosen),
                       [&](const Bar& bar) { return bar.id.starts_with(arguments.only); });
  if (chosen.empty()) return Fail(absl::StrCat("no figure begins with '", arguments.only, "'"));
  std::ofstream out;
  if (!arguments.out.empty()) out.open(arguments.out, std::ios::trunc);
  if (!arguments.out.empty() && !out)
    return Fail(absl::StrCat(arguments.out, ": cannot be written"));
  const auto sha256 = Sha256(program.string());
  if (!sha256.ok()) return Fail(std::string(sha256.status().message()));

  Setting setting{.device = arguments.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda,
                  .programs = programs,
                  .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  const auto device = FindDevice(setting.device);
  if (device.ok()) setting.uuid = device->uuid;
  const bool cuda = device.ok() && setting.device == DeviceKind::kCuda;
  const Nvml nvml;
  const Provenance provenance{
      .device = device.ok() ? device->name : "none",
      .driver = cuda ? nvml.DriverVersion().value_or("unknown") : "none",
      .binary_sha256 = *sha256,
      .commit = std::string(BuiltCommit()),
      .date = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())};

  int code = kAllHold;
  for (const Bar& bar : chosen) {
    const auto measured = Measure(bar, setting, device.status());
    const auto clocks = cuda ? nvml.ClocksOf(setting.uuid) : std::nullopt;
    const nlohmann::ordered_json line = LineOf(bar, measured, provenance, clocks);
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    if (out.is_open()) out << line.dump() << std::endl;
    if (IsMust(bar.kind) && !line["ok"].get<bool>()) code = kOneDoesNot;
  }
  if (out.is_open() && !out) return Fail(absl::StrCat(arguments.out, ": could not be written"));
  return code;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Measures the figures Tetrad is held to, one JSON line for each");
  app.add_option("--device", arguments.device, "What to measure on")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  app.add_option("--only", arguments.only, "Figures whose id begins so; default: all");
  app.add_option("--bars", arguments.bars,
                 "Definitions; default: ../share/bars.tsv of the program");
  app.add_option("--out", arguments.out, "File that gets the lines, too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kAllHold : kNothingMeasured;
  }
  return Run(arguments);
}

}  // namespace
}  // namespace tetrad::bars

int main(int argc, char** argv) {
  try {
    return tetrad::bars::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tetrad-bars: %s\n", error.what());
    return 2;
  }
}
