// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/progress.h"
#include "clients/cli/table.h"
#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad::cli {
namespace {

// Scale bytes from 2^-2 to 2 - 2^-3: ordinary values, no NaN.
constexpr int kLeastScale = 0x28;
constexpr int kMostScale = 0x3F;

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

void FillActivations(Random& random, v1::ActivationType type, std::string& bytes) {
  if (type == v1::ACTIVATION_TYPE_NVFP4) {
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    return;
  }
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const float value = random.Normal();
    const uint16_t bits = type == v1::ACTIVATION_TYPE_FP16 ? EncodeFp16(value) : EncodeBf16(value);
    std::memcpy(bytes.data() + i, &bits, sizeof(bits));
  }
}

// Live rows of a capacity: those asked for, else all rows spread evenly.
absl::StatusOr<std::vector<int32_t>> LiveRows(const RunCommand& command, const v1::PlanInfo& info) {
  const v1::Capacity& capacity = command.signature.capacity();
  const auto groups = static_cast<size_t>(info.groups());
  std::vector<int32_t> live = command.live_rows;
  if (live.empty()) {
    const bool per_group = capacity.m_source() == v1::M_SOURCE_COUNTS;
    const int64_t rows = per_group ? capacity.rows() : capacity.rows() / info.groups();
    live.assign(groups, static_cast<int32_t>(rows));
  }
  if (live.size() != groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("--m has ", live.size(), " groups, the weights ", "have ", groups));
  }
  if (capacity.m_source() == v1::M_SOURCE_OFFSETS) {
    std::vector<int32_t> offsets(1, 0);
    for (const int32_t rows : live) offsets.push_back(offsets.back() + rows);
    return offsets;
  }
  return live;
}

// Asked before operands are made: a capacity may reserve far more than fits here.
absl::Status CheckSize(const Session& session, const v1::PlanInfo& info) {
  const auto status = session.client.GetStatus(session.call);
  if (!status.ok()) return status.status();
  const int64_t bytes =
      info.activation_bytes() + info.activation_scale_bytes() + info.output_bytes();
  if (bytes <= status->max_inline_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("operands and output are ", bytes, " bytes, the daemon takes ",
                   status->max_inline_bytes(), " (max_inline_bytes)"));
}

absl::StatusOr<v1::ExecuteRequest> MakeRequest(const Session& session, const RunCommand& command,
                                               const v1::PrepareResponse& plan) {
  const v1::PlanInfo& info = plan.info();
  if (const absl::Status status = CheckSize(session, info); !status.ok()) return status;
  Random random(command.seed);
  v1::ExecuteRequest request;
  request.set_plan(plan.plan());
  v1::InlineOperands& operands = *request.mutable_inline_operands();
  operands.mutable_activations()->resize(static_cast<size_t>(info.activation_bytes()));
  FillActivations(random, command.signature.activation_type(), *operands.mutable_activations());
  operands.mutable_activation_scales()->resize(static_cast<size_t>(info.activation_scale_bytes()));
  for (char& scale : *operands.mutable_activation_scales()) {
    scale = static_cast<char>(random.Between(kLeastScale, kMostScale));
  }
  for (int64_t row = 0; command.signature.row_scale() && row < info.rows(); ++row) {
    operands.add_row_scale(random.Significand());
  }
  if (command.signature.has_capacity()) {
    const auto values = LiveRows(command, info);
    if (!values.ok()) return values.status();
    operands.mutable_m_values()->Assign(values->begin(), values->end());
  }
  return request;
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
  const auto request = MakeRequest(session, command, *plan);
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
