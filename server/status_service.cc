// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status_service.h"

#include "absl/time/clock.h"

#include "server/unary_call.h"
#include "server/version.h"

namespace tetrad {
namespace {

void Fill(const ServiceContext& service, v1::GetStatusResponse& out) {
  const EngineStats stats = service.engine.Stats();
  const DeviceLimits& limits = service.engine.device_limits();
  out.set_version(std::string(BuildVersion().version));
  out.set_state(service.gate.closing() ? "draining" : "serving");
  out.set_uptime_seconds(absl::ToDoubleSeconds(absl::Now() - service.started));
  v1::DeviceStatus& device = *out.add_devices();
  device.set_uuid(limits.uuid);
  device.set_name(limits.name);
  device.set_capability(limits.capability);
  device.set_units(limits.ctas);
  device.set_flops_per_second(limits.rates.flops_per_second);
  device.set_read_bytes_per_second(limits.rates.read_bytes_per_second);
  device.set_allocated_bytes(stats.memory.allocated_bytes);
  device.set_allocations(stats.memory.allocations);
  device.set_limit_bytes(stats.memory.limit_bytes);
  v1::ExecutionStatus& execution = *device.mutable_execution();
  execution.set_plans(stats.execution.plans);
  execution.set_table_bytes(stats.execution.table_bytes);
  execution.set_tensor_maps(stats.execution.tensor_maps);
  execution.set_graphs(stats.execution.graphs);
  execution.set_graph_bytes(stats.execution.graph_bytes);
  execution.set_graph_limit_bytes(stats.execution.graph_limit_bytes);
  execution.set_captures(stats.execution.captures);
  execution.set_replay_proofs(stats.execution.proofs);
  out.set_plans_cached(stats.plans_cached);
  out.set_plan_capacity(service.config.plan_capacity);
  out.set_plan_handles(stats.plan_handles);
  out.set_weights(stats.weights_versions);
  out.set_weights_bytes(stats.weights_bytes);
  out.set_staging_bytes(stats.staging_bytes);
  out.set_in_flight(stats.in_flight);
  out.set_max_inline_bytes(service.config.max_inline_bytes);
  v1::PoolStatus& pool = *out.mutable_pool();
  pool.set_reserved_bytes(stats.pool.reserved_bytes);
  pool.set_block_bytes(stats.pool.block_bytes);
  pool.set_whole_bytes(stats.pool.whole_bytes);
  pool.set_free_bytes(stats.pool.free_bytes);
  pool.set_largest_free_bytes(stats.pool.largest_free_bytes);
  pool.set_chunks(stats.pool.chunks);
  out.set_leases(stats.leases.leases);
  out.set_detached_leases(stats.leases.detached);
  out.set_blocks(stats.blocks);
  out.set_block_bytes(stats.block_bytes);
}

}  // namespace

grpc::ServerUnaryReactor* StatusService::GetStatus(grpc::CallbackServerContext* context,
                                                   const v1::GetStatusRequest* request,
                                                   v1::GetStatusResponse* response) {
  return AnswerNow(service_, Method::kGetStatus, *context, {request, response},
                   [this, response](const std::string&) {
                     Fill(service_, *response);
                     const TicketTable::Stats tickets = tickets_.stats();
                     response->set_tickets(tickets.admitting + tickets.under_way + tickets.done);
                     response->set_ticket_bytes(tickets_.used_bytes());
                     return absl::OkStatus();
                   });
}

}  // namespace tetrad
