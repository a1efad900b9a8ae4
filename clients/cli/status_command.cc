// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/table.h"

namespace tetrad::cli {

absl::StatusOr<int> Run(const Session& session, const StatusCommand&) {
  const auto status = session.client.GetStatus(session.call);
  if (!status.ok()) return status.status();
  if (session.output.json) {
    session.output.PrintMessage(*status);
    return kExitOk;
  }
  Table facts({{"daemon"}, {session.client.endpoint()}});
  facts.AddRow({"version", status->version()});
  facts.AddRow({"state", status->state()});
  facts.AddRow({"up", FormatDuration(status->uptime_seconds())});
  facts.AddRow({"plans", absl::StrCat(status->plans_cached(), " of ", status->plan_capacity(),
                                      " cached, ", status->plan_handles(), " handles")});
  facts.AddRow(
      {"weights", absl::StrCat(status->weights(), ", ", FormatBytes(status->weights_bytes()))});
  facts.AddRow({"staging", FormatBytes(status->staging_bytes())});
  const v1::PoolStatus& pool = status->pool();
  facts.AddRow({"pool", absl::StrCat(FormatBytes(pool.reserved_bytes()), ", ",
                                     FormatBytes(pool.free_bytes()), " of it free in ",
                                     pool.chunks(), " chunks")});
  facts.AddRow({"leases", absl::StrCat(status->leases(), ", ", status->detached_leases(),
                                       " in their grace time")});
  facts.AddRow(
      {"blocks", absl::StrCat(status->blocks(), ", ", FormatBytes(status->block_bytes()))});
  facts.AddRow({"in flight", absl::StrCat(status->in_flight())});
  facts.AddRow({"inline limit", FormatBytes(status->max_inline_bytes())});

  // Of devices that need any of it; with one device, as now, without its name.
  for (const v1::DeviceStatus& device : status->devices()) {
    const v1::ExecutionStatus& use = device.execution();
    if (use.graph_limit_bytes() == 0) continue;
    facts.AddRow({"tables", absl::StrCat(use.plans(), " plans, ", FormatBytes(use.table_bytes()),
                                         ", ", use.tensor_maps(), " tensor maps")});
    facts.AddRow({"graphs", absl::StrCat(use.graphs(), ", ", FormatBytes(use.graph_bytes()), " of ",
                                         FormatBytes(use.graph_limit_bytes()), ", ", use.captures(),
                                         " captures, ", use.replay_proofs(), " replay proofs")});
  }

  constexpr auto kRight = Table::Align::kRight;
  Table devices({{"device"},
                 {"capability"},
                 {"units", kRight},
                 {"GFLOP/s", kRight},
                 {"GB/s read", kRight},
                 {"allocated", kRight},
                 {"uuid"}});
  for (const v1::DeviceStatus& device : status->devices()) {
    devices.AddRow(
        {device.name(), device.capability(), absl::StrCat(device.units()),
         FormatNumber(device.flops_per_second() * 1e-9),
         FormatNumber(device.read_bytes_per_second() * 1e-9),
         absl::StrCat(FormatBytes(device.allocated_bytes()), " in ", device.allocations()),
         device.uuid()});
  }
  session.output.PrintText(absl::StrCat(facts.Render(), "\n", devices.Render()));
  return kExitOk;
}

}  // namespace tetrad::cli
