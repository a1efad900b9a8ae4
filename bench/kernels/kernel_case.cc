// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/kernel_case.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr std::array<std::string_view, 3> kActivations = {"nvfp4", "fp16", "bf16"};
constexpr size_t kFields = 7;

absl::StatusOr<int32_t> ParseSize(const char* field, absl::string_view text, int32_t least) {
  int32_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= least) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(field, " '", text, "' is no number of at least ", least));
}

absl::StatusOr<KernelCase> ParseCase(absl::string_view line) {
  std::vector<std::string> fields = absl::StrSplit(line, ',');
  if (fields.size() != kFields) {
    return absl::InvalidArgumentError(absl::StrCat(fields.size(), " fields, wanted ", kFields));
  }
  for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
  KernelCase c{.id = fields[0]};
  if (c.id.empty()) return absl::InvalidArgumentError("no id");
  TETRAD_ASSIGN_OR_RETURN(const int32_t groups, ParseSize("G", fields[1], 1));
  TETRAD_ASSIGN_OR_RETURN(const int32_t k, ParseSize("K", fields[2], 1));
  TETRAD_ASSIGN_OR_RETURN(const int32_t n, ParseSize("N", fields[3], 1));
  if (k % kKMultiple != 0) {
    return absl::InvalidArgumentError(absl::StrCat("K ", k, " is no multiple of ", kKMultiple));
  }
  for (const absl::string_view rows : absl::StrSplit(fields[4], ' ', absl::SkipEmpty())) {
    TETRAD_ASSIGN_OR_RETURN(const int32_t m, ParseSize("M", rows, 0));
    c.groups.push_back({m, n, k});
  }
  if (c.groups.size() != static_cast<size_t>(groups)) {
    return absl::InvalidArgumentError(absl::StrCat(c.groups.size(), " M for ", groups, " groups"));
  }
  const auto type = std::ranges::find(kActivations, fields[5]);
  if (type == kActivations.end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown activation '", fields[5], "'"));
  }
  c.activations = static_cast<ActivationType>(type - kActivations.begin());
  if (fields[6] != "fp16") {
    return absl::InvalidArgumentError(absl::StrCat("output '", fields[6], "' is not timed: fp16"));
  }
  return c;
}

nlohmann::ordered_json SpreadOf(const Measured& measured) {
  return {measured.value, measured.low, measured.high};
}

}  // namespace

std::string_view NameOf(ActivationType activations) {
  return kActivations[static_cast<size_t>(activations)];
}

absl::StatusOr<std::vector<KernelCase>> ParseKernelCases(std::string_view text) {
  std::vector<KernelCase> cases;
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty() || line[0] == '#') continue;
    auto parsed = ParseCase(line);
    if (parsed.ok()) {
      const auto same = std::ranges::find(cases, parsed->id, &KernelCase::id);
      if (same != cases.end() && same->groups != parsed->groups) {
        parsed = absl::InvalidArgumentError(absl::StrCat(parsed->id, " had other groups before"));
      }
    }
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", parsed.status().message()));
    }
    cases.push_back(*std::move(parsed));
  }
  return cases;
}

absl::StatusOr<std::vector<KernelCase>> ReadKernelCases(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  auto cases = ParseKernelCases(text.str());
  if (cases.ok()) return cases;
  return absl::Status(cases.status().code(), absl::StrCat(path, ": ", cases.status().message()));
}

nlohmann::ordered_json JsonOf(const KernelCase& c, const TypeTiming& timing,
                              const CasePeers& peers) {
  std::vector<int32_t> m;
  for (const GroupShape& group : c.groups) m.push_back(group.m);
  nlohmann::ordered_json by_peer = nlohmann::ordered_json::object();
  for (const auto& entry : peers) {
    if (entry.second.ok()) {
      by_peer[entry.first] = SpreadOf(*entry.second);
    } else {
      by_peer[entry.first] = std::string(entry.second.status().message());
    }
  }
  return {{"id", c.id},
          {"activation", std::string(NameOf(c.activations))},
          {"output", "fp16"},
          {"groups", c.groups.size()},
          {"k", c.groups[0].k},
          {"n", c.groups[0].n},
          {"m", m},
          {"kernel", timing.kernel},
          {"explanation", timing.explanation},
          {"sets", timing.sets},
          {"calls", timing.calls},
          {"flops", timing.floor.flops},
          {"bytes", timing.floor.bytes},
          {"product_tflops", timing.rates.flops_per_second * 1e-12},
          {"read_tbps", timing.rates.read_bytes_per_second * 1e-12},
          {"compute_floor_us", timing.floor.compute_us},
          {"memory_floor_us", timing.floor.memory_us},
          {"cold_us", SpreadOf(timing.cold_us)},
          {"warm_us", SpreadOf(timing.warm_us)},
          {"share", SpreadOf(timing.share)},
          {"peers", by_peer}};
}

}  // namespace tetrad::bars
