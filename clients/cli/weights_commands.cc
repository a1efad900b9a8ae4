// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/progress.h"
#include "clients/cli/table.h"

namespace tetrad::cli {
namespace {

// "8 x 4096 x 7168" where all groups are alike, else the ranges of N and K.
std::string DescribeShape(const v1::WeightsInfo& weights) {
  if (weights.groups().empty()) return absl::StrCat(weights.group_count());
  const auto range = [&weights](auto field) {
    const auto [low, high] = std::minmax_element(
        weights.groups().begin(), weights.groups().end(),
        [field](const auto& a, const auto& b) { return (a.*field)() < (b.*field)(); });
    const int32_t from = ((*low).*field)(), to = ((*high).*field)();
    return from == to ? absl::StrCat(from) : absl::StrCat(from, "..", to);
  };
  return absl::StrCat(weights.group_count(), " x ", range(&v1::GroupDims::n), " x ",
                      range(&v1::GroupDims::k));
}

std::string DescribeLayout(v1::ScaleLayout layout) {
  return layout == v1::SCALE_LAYOUT_BLOCKED ? "blocked" : "linear";
}

std::string RenderWeights(const google::protobuf::RepeatedPtrField<v1::WeightsInfo>& weights) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"weights"},
               {"version", kRight},
               {"state"},
               {"groups x n x k"},
               {"scales"},
               {"bytes", kRight},
               {"source"}});
  for (const v1::WeightsInfo& info : weights) {
    table.AddRow({info.name(), absl::StrCat(info.version()), info.sealed() ? "sealed" : "open",
                  DescribeShape(info), DescribeLayout(info.scale_layout()),
                  FormatBytes(info.bytes()), info.source()});
  }
  return table.Render();
}

}  // namespace

absl::StatusOr<int> Run(const Session& session, const WeightsLoadCommand& command) {
  ProgressBar bar(session.output.err, session.output.progress, "loading",
                  ProgressBar::Unit::kBytes);
  const auto loaded = session.client.Load(
      command.request, [&bar](int64_t done, int64_t total) { bar.Update(done, total); },
      session.call);
  bar.Clear();
  if (!loaded.ok()) return loaded.status();
  if (session.output.json) {
    session.output.PrintMessage(*loaded);
    return kExitOk;
  }
  google::protobuf::RepeatedPtrField<v1::WeightsInfo> weights;
  *weights.Add() = loaded->weights();
  session.output.PrintText(RenderWeights(weights));
  for (const std::string& note : loaded->notes()) {
    session.output.PrintText(absl::StrCat("note: ", note, "\n"));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(const Session& session, const WeightsListCommand&) {
  const auto list = session.client.ListWeights(session.call);
  if (!list.ok()) return list.status();
  if (session.output.json) {
    session.output.PrintMessage(*list);
  } else {
    session.output.PrintText(list->weights().empty() ? "the daemon holds no weights\n"
                                                     : RenderWeights(list->weights()));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(const Session& session, const WeightsSealCommand& command) {
  const auto sealed = session.client.Seal(command.name, command.version, session.call);
  if (!sealed.ok()) return sealed.status();
  if (session.output.json) {
    session.output.PrintMessage(*sealed);
    return kExitOk;
  }
  google::protobuf::RepeatedPtrField<v1::WeightsInfo> weights;
  *weights.Add() = *sealed;
  session.output.PrintText(RenderWeights(weights));
  return kExitOk;
}

absl::StatusOr<int> Run(const Session& session, const WeightsDropCommand& command) {
  const auto dropped = session.client.Drop(command.weights, session.call);
  if (!dropped.ok()) return dropped.status();
  if (session.output.json) {
    session.output.PrintJson({{"dropped", *dropped}});
  } else {
    session.output.PrintText(absl::StrCat("dropped ", *dropped,
                                          *dropped == 1 ? " version of " : " versions of ",
                                          command.weights, "\n"));
  }
  return kExitOk;
}

}  // namespace tetrad::cli
