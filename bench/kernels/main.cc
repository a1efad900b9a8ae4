// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
//   tetrad-kernels [--cases FILE] [--only ID] [--no-peers] [--out FILE]
//
// Times every case of a CSV file (kernel_case.h; by default the named shapes) cold and
// warm, beside its floors and what cuBLAS and PyTorch make of it with weights
// dequantised beforehand, and prints a line of JSON for each. Exit status 0: every
// case was timed; 1: one was not, or computed something else than the product; 2:
// nothing was timed.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/bars/bench_device.h"
#include "bench/bars/nvml.h"
#include "bench/bars/report.h"
#include "bench/bars/version.h"
#include "bench/kernels/floor_meter.h"
#include "bench/kernels/kernel_case.h"
#include "bench/kernels/library_peers.h"
#include "bench/kernels/shape_timing.h"
#include "bench/kernels/torch_peers.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr int kAllTimed = 0, kOneWasNot = 1, kNothingTimed = 2;

struct Arguments {
  std::string cases;
  std::string only;
  std::string out;
  bool no_peers = false;
};

// Peers take the same numbers in 16 bits; with NVFP4 activations those of FP16.
absl::StatusOr<CasePeers> TimeCublas(Gpu& gpu, const Cublas& cublas, const ShapeSets& sets,
                                     const KernelCase& c) {
  const ActivationType type =
      c.activations == ActivationType::kNvfp4 ? ActivationType::kFp16 : c.activations;
  TETRAD_ASSIGN_OR_RETURN(const auto ours, TimedProblem::Make(gpu, sets, {.activations = type}));
  TETRAD_ASSIGN_OR_RETURN(const auto peers, LibraryPeers::Make(gpu, cublas, sets, *ours));
  TETRAD_ASSIGN_OR_RETURN(const LibraryRatios ratios, TimeLibraryPeers(*ours, *peers));
  CasePeers times;
  times.emplace("cublas_streams", ratios.streams.OursSpread());
  if (peers->has_grouped()) times.emplace("cublas_grouped", ratios.grouped.OursSpread());
  return times;
}

absl::StatusOr<nlohmann::ordered_json> TimeCase(Gpu& gpu, FloorMeter& meter, const KernelCase& c,
                                                const PeerTimes& torch, bool peers, int threads) {
  TETRAD_ASSIGN_OR_RETURN(const auto sets, ShapeSets::Make(gpu, c.groups, threads));
  TETRAD_ASSIGN_OR_RETURN(const auto timings, TimeShape(gpu, meter, *sets, {&c.activations, 1}));
  CasePeers times;
  if (peers) {
    TETRAD_ASSIGN_OR_RETURN(times, TimeCublas(gpu, meter.cublas(), *sets, c));
    if (const auto found = torch.find(c.id); found != torch.end()) {
      times.insert(found->second.begin(), found->second.end());
    }
  }
  return JsonOf(c, timings.front(), times);
}

// Of one case of each id; empty where PyTorch is not installed, which is said.
PeerTimes TimeTorch(const std::string& programs, const std::vector<KernelCase>& cases) {
  std::vector<PeerShape> shapes;
  for (const KernelCase& c : cases) {
    if (std::ranges::find(shapes, c.id, &PeerShape::id) == shapes.end()) {
      shapes.push_back({c.id, c.groups});
    }
  }
  auto times = MeasureTorchPeers(programs + "/../share/torch_peers.py", shapes);
  if (times.ok()) return *std::move(times);
  std::fprintf(stderr, "tetrad-kernels: without PyTorch: %s\n",
               std::string(times.status().message()).c_str());
  return {};
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "tetrad-kernels: %s\n", what.c_str());
  return kNothingTimed;
}

int Run(const Arguments& arguments) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(absl::StrCat("/proc/self/exe: ", error.message()));
  const std::string programs = program.parent_path().string();
  auto cases =
      ReadKernelCases(arguments.cases.empty() ? programs + "/../share/cases.csv" : arguments.cases);
  if (!cases.ok()) return Fail(std::string(cases.status().message()));
  std::erase_if(*cases, [&](const KernelCase& c) {
    return !arguments.only.empty() && c.id != arguments.only;
  });
  if (cases->empty()) return Fail("no such case");
  std::ofstream out;
  if (!arguments.out.empty()) out.open(arguments.out, std::ios::trunc);
  if (!arguments.out.empty() && !out) {
    return Fail(absl::StrCat(arguments.out, ": cannot be written"));
  }
  const auto facts = FindDevice(DeviceKind::kCuda);
  if (!facts.ok()) return Fail(std::string(facts.status().message()));
  const Setting setting{
      .uuid = facts->uuid,
      .programs = programs,
      .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  // While this process has no device open.
  const PeerTimes torch = arguments.no_peers ? PeerTimes() : TimeTorch(programs, *cases);
  const auto gpu = Gpu::Open(setting);
  if (!gpu.ok()) return Fail(std::string(gpu.status().message()));
  const auto meter = FloorMeter::Make(**gpu, setting.threads);
  if (!meter.ok()) return Fail(std::string(meter.status().message()));
  const auto sha256 = Sha256(program.string());
  if (!sha256.ok()) return Fail(std::string(sha256.status().message()));
  const Nvml nvml;
  int code = kAllTimed;
  for (const KernelCase& c : *cases) {
    auto line = TimeCase(**gpu, **meter, c, torch, !arguments.no_peers, setting.threads);
    if (!line.ok()) {
      code = kOneWasNot;
      line = nlohmann::ordered_json{{"id", c.id},
                                    {"activation", std::string(NameOf(c.activations))},
                                    {"reason", std::string(line.status().message())}};
    }
    const auto clocks = nvml.ClocksOf(setting.uuid);
    (*line)["device"] = facts->name;
    (*line)["driver"] = nvml.DriverVersion().value_or("unknown");
    (*line)["sm_mhz"] = clocks.has_value() ? nlohmann::json(clocks->sm_mhz) : nlohmann::json();
    (*line)["binary_sha256"] = *sha256;
    (*line)["commit"] = std::string(BuiltCommit());
    (*line)["date"] = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone());
    std::printf("%s\n", line->dump().c_str());
    std::fflush(stdout);
    if (out.is_open()) out << line->dump() << std::endl;
  }
  if (out.is_open() && !out) return Fail(absl::StrCat(arguments.out, ": could not be written"));
  return code;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times grouped GEMMs beside their floors and peers, one JSON line for each");
  app.add_option("--cases", arguments.cases,
                 "CSV file; default: ../share/cases.csv of the program");
  app.add_option("--only", arguments.only, "Cases of this id; default: all");
  app.add_flag("--no-peers", arguments.no_peers, "Without cuBLAS and PyTorch as peers");
  app.add_option("--out", arguments.out, "File that gets the lines, too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kAllTimed : kNothingTimed;
  }
  return Run(arguments);
}

}  // namespace
}  // namespace tetrad::bars

int main(int argc, char** argv) {
  try {
    return tetrad::bars::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tetrad-kernels: %s\n", error.what());
    return 2;
  }
}
