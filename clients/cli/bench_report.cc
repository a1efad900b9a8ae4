// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/bench_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "clients/cli/percentiles.h"
#include "clients/cli/table.h"

namespace tetrad::cli {
namespace {

struct Timing {
  const char* title;
  const char* key;  // in JSON
  double LoadSample::*field;
};
constexpr Timing kTimings[] = {{"client", "client", &LoadSample::client_us},
                               {"queued", "queued", &LoadSample::queued_us},
                               {"device", "device", &LoadSample::device_us},
                               {"total in daemon", "total", &LoadSample::total_us}};

Percentiles Of(const LoadResult& load, double LoadSample::*field) {
  std::vector<double> values;
  for (const LoadSample& sample : load.samples) values.push_back(sample.*field);
  return PercentilesOf(std::move(values));
}

struct Rates {
  double seconds = 0, requests = 0, tflops = 0, bytes = 0;
  double busy = 0;  // floors of all requests over the time they took together
};

Rates RatesOf(const BenchReport& report) {
  Rates rates;
  rates.seconds = absl::ToDoubleSeconds(report.load.elapsed);
  const double requests = static_cast<double>(report.load.samples.size());
  rates.requests = rates.seconds > 0 ? requests / rates.seconds : 0;
  rates.tflops = rates.requests * report.flops * 1e-12;
  rates.bytes = rates.requests * static_cast<double>(report.request_bytes + report.reply_bytes);
  rates.busy = rates.requests * report.floor_us * 1e-6;
  return rates;
}

void PrintDocument(const Output& output, const BenchReport& report) {
  const Rates rates = RatesOf(report);
  nlohmann::json timings = nlohmann::json::object();
  nlohmann::json errors = nlohmann::json::array();
  for (const Timing& timing : kTimings) {
    if (report.load.samples.empty()) break;
    const Percentiles p = Of(report.load, timing.field);
    timings[timing.key] = {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"max", p.max}};
  }
  for (const auto& [code, these] : report.load.errors) {
    errors.push_back(
        {{"code", absl::StatusCodeToString(code)}, {"count", these.count}, {"first", these.first}});
  }
  nlohmann::json document = {{"weights", report.weights},
                             {"kernel", report.kernel},
                             {"checked", report.checked},
                             {"plan", report.plan},
                             {"in_flight", report.in_flight},
                             {"requests", report.load.samples.size()},
                             {"failed", report.load.failed()},
                             {"interrupted", report.load.stopped},
                             {"seconds", rates.seconds},
                             {"requests_per_second", rates.requests},
                             {"tflops_per_second", rates.tflops},
                             {"bytes_per_second", rates.bytes},
                             {"request_bytes", report.request_bytes},
                             {"reply_bytes", report.reply_bytes},
                             {"flops", report.flops},
                             {"floor_us", report.floor_us},
                             {"floor_share_of_time", rates.busy},
                             {"timings_us", timings},
                             {"errors", errors}};
  document["share"] = report.load.samples.empty()
                          ? nlohmann::json()
                          : nlohmann::json(Of(report.load, &LoadSample::share).p50);
  output.PrintJson(document);
}

}  // namespace

void Print(const Output& output, const BenchReport& report) {
  if (output.json) return PrintDocument(output, report);
  const Rates rates = RatesOf(report);
  std::string text = absl::StrCat(
      report.weights, " on ", report.kernel, ", ", report.in_flight, " in flight, ",
      report.plan ? "one plan" : "signature with each request", "; checked: ", report.checked, "\n",
      report.load.samples.size(), " requests in ", FormatNumber(rates.seconds), " s",
      report.load.stopped ? ", interrupted" : "", "\n");
  if (!report.load.samples.empty()) {
    constexpr auto kRight = Table::Align::kRight;
    Table table({{"us"}, {"p50", kRight}, {"p90", kRight}, {"p99", kRight}, {"max", kRight}});
    for (const Timing& timing : kTimings) {
      const Percentiles p = Of(report.load, timing.field);
      table.AddRow({timing.title, FormatNumber(p.p50), FormatNumber(p.p90), FormatNumber(p.p99),
                    FormatNumber(p.max)});
    }
    absl::StrAppend(&text, FormatNumber(rates.requests), " requests/s, ",
                    FormatNumber(rates.tflops), " TFLOP/s, ",
                    FormatBytes(static_cast<int64_t>(rates.bytes)), "/s of operands and outputs\n",
                    table.Render(), "floor ", FormatNumber(report.floor_us), " us, share ",
                    FormatNumber(Of(report.load, &LoadSample::share).p50), " on the device, ",
                    FormatNumber(rates.busy), " of the time\n",
                    report.capacity ? "floor and share are those of the full capacity\n" : "");
  }
  if (!report.load.errors.empty()) {
    Table table({{"errors", Table::Align::kRight}, {"code"}, {"first message"}});
    for (const auto& [code, these] : report.load.errors) {
      table.AddRow({absl::StrCat(these.count), absl::StatusCodeToString(code), these.first});
    }
    absl::StrAppend(&text, table.Render());
  }
  output.PrintText(text);
}

}  // namespace tetrad::cli
