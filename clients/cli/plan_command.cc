// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/table.h"

namespace tetrad::cli {

absl::StatusOr<int> Run(const Session& session, const PlanCommand& command) {
  auto plan = session.client.Prepare(command.signature, session.call);
  if (!plan.ok()) return plan.status();
  // The plan itself stays cached; only the handle is given back.
  const absl::Status released = session.client.Release(plan->plan(), session.call);
  if (!released.ok()) return released;
  if (session.output.json) {
    plan->clear_plan();  // names nothing any more
    session.output.PrintMessage(*plan);
    return kExitOk;
  }
  const v1::PlanInfo& info = plan->info();
  const v1::Floor& floor = info.floor();
  Table table({{"plan"}, {plan->cached() ? "cached" : "built now"}});
  table.AddRow({"weights", plan->weights()});
  table.AddRow({"kernel", info.kernel()});
  table.AddRow({"device", info.device()});
  table.AddRow(
      {"groups", absl::StrCat(info.groups(), ", ", info.rows(),
                              command.signature.has_capacity() ? " rows reserved" : " rows")});
  if (command.signature.has_capacity()) {
    table.AddRow({"tiles", "follow the rows of each launch"});
  } else {
    table.AddRow({"tiles", absl::StrCat(info.tiles(), " on ", info.ctas(), " CTAs, balance ",
                                        FormatNumber(info.balance()))});
  }
  table.AddRow({"floor", absl::StrCat(FormatNumber(floor.floor_us()), " us: compute ",
                                      FormatNumber(floor.compute_us()), ", memory ",
                                      FormatNumber(floor.memory_us()))});
  table.AddRow({"work", absl::StrCat(FormatNumber(floor.flops() * 1e-9), " GFLOP, ",
                                     FormatBytes(static_cast<int64_t>(floor.bytes())))});
  table.AddRow({"operands", absl::StrCat("activations ", FormatBytes(info.activation_bytes()),
                                         ", scales ", FormatBytes(info.activation_scale_bytes()),
                                         ", output ", FormatBytes(info.output_bytes()))});
  table.AddRow({"why", info.explanation()});
  session.output.PrintText(table.Render());
  return kExitOk;
}

}  // namespace tetrad::cli
