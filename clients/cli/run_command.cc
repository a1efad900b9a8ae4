// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/progress.h"
#include "clients/cli/random_operands.h"
#include "clients/cli/table.h"

namespace tetrad::cli {
namespace {

struct Sample {
  const char* title;
  const char* key;  // in JSON
  std::vector<double> us;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Measured {
  std::array<Sample, 5> samples = {{{"queued", "queued", {}},
                                    {"launch", "launch", {}},
                                    {"device", "device", {}},
                                    {"total", "total", {}},
                                    {"round trip", "round_trip", {}}}};
  std::vector<double> shares;
  v1::ExecuteResponse last;
};

absl::StatusOr<Measured> Measure(const Session& session, const RunCommand& command,
                                 const v1::ExecuteRequest& request) {
  Measured measured;
  ProgressBar bar(session.output.err, session.output.progress, "running",
                  ProgressBar::Unit::kCount);
  for (int i = -command.warmups; i < command.repeats; ++i) {
    bar.Update(i + command.warmups, command.warmups + command.repeats);
    const absl::Time start = absl::Now();
    auto response = session.client.Execute(request, session.call);
    const absl::Duration round_trip = absl::Now() - start;
    if (!response.ok()) return response.status();
    if (i < 0) continue;
    const v1::Timings& t = response->timings();
    const double values[] = {t.queued_us(), t.launch_us(), t.device_us(), t.total_us(),
                             absl::ToDoubleMicroseconds(round_trip)};
    for (size_t s = 0; s < measured.samples.size(); ++s) {
      measured.samples[s].us.push_back(values[s]);
    }
    measured.shares.push_back(t.share());
    measured.last = *std::move(response);
  }
  return measured;
}

void Print(const Output& output, const RunCommand& command, const Measured& measured) {
  const v1::ExecuteResponse& last = measured.last;
  const double share = Median(measured.shares);
  if (output.json) {
    nlohmann::json timings;
    for (const Sample& sample : measured.samples) {
      const auto [least, most] = std::minmax_element(sample.us.begin(), sample.us.end());
      timings[sample.key] = {{"min", *least}, {"median", Median(sample.us)}, {"max", *most}};
    }
    output.PrintJson({{"weights", last.weights()},
                      {"kernel", last.kernel()},
                      {"repeats", command.repeats},
                      {"floor_us", last.floor_us()},
                      {"share", share},
                      {"timings_us", timings}});
    return;
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"us"}, {"median", kRight}, {"min", kRight}, {"max", kRight}});
  for (const Sample& sample : measured.samples) {
    const auto [least, most] = std::minmax_element(sample.us.begin(), sample.us.end());
    table.AddRow(
        {sample.title, FormatNumber(Median(sample.us)), FormatNumber(*least), FormatNumber(*most)});
  }
  output.PrintText(absl::StrCat(
      last.weights(), " on ", last.kernel(), ", ", command.repeats, " runs\n", table.Render(),
      "floor ", FormatNumber(last.floor_us()), " us, share ", FormatNumber(share), "\n",
      command.signature.has_capacity() ? "floor and share are those of the full capacity\n" : ""));
}

}  // namespace

absl::StatusOr<int> Run(const Session& session, const RunCommand& command) {
  const auto plan = session.client.Prepare(command.signature, session.call);
  if (!plan.ok()) return plan.status();
  const auto request =
      MakeRandomRequest(session, {command.signature, command.live_rows, command.seed}, *plan);
  const absl::StatusOr<Measured> measured = request.ok()
                                                ? Measure(session, command, *request)
                                                : absl::StatusOr<Measured>(request.status());
  const absl::Status released = session.client.Release(plan->plan(), session.call);
  if (!measured.ok()) return measured.status();
  if (!released.ok()) return released;
  Print(session.output, command, *measured);
  return kExitOk;
}

}  // namespace tetrad::cli
