// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/plans_on_device.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace tetrad::cuda {
namespace {

constexpr int64_t kTableSpacing = 256;

std::vector<GroupEntry> GroupTable(const Plan& plan) {
  const Signature& signature = plan.signature;
  std::vector<GroupEntry> table(signature.groups.size());
  int64_t b = 0, b_scales = 0;
  for (size_t g = 0; g < table.size(); ++g) {
    const GroupShape& shape = signature.groups[g];
    const GroupOffsets& at = plan.layout.groups[g];
    table[g] = {.a = at.a,
                .a_scales = at.a_scales,
                .b = b,
                .b_scales = b_scales,
                .c = at.c,
                .row = at.row,
                .c_stride = at.c_stride,
                .m = shape.m,
                .n = shape.n,
                .k = shape.k};
    b += CodeBytes(shape.n, shape.k);
    b_scales += ScalePlaneBytes(signature.types.b_scale_layout, shape.n, shape.k);
  }
  return table;
}

template <typename T>
int64_t SpacedBytes(const std::vector<T>& table) {
  return RoundUp(static_cast<int64_t>(table.size() * sizeof(T)), kTableSpacing);
}

}  // namespace

absl::StatusOr<std::shared_ptr<PlanOnDevice>> PlansOnDevice::Place(const Plan& plan) {
  const Signature& signature = plan.signature;
  auto made = std::make_shared<PlanOnDevice>();
  LaunchArguments& arguments = made->arguments;
  arguments.capacity_rows = signature.capacity_rows;
  arguments.c_stride = plan.layout.c_stride;
  arguments.group_count = static_cast<int32_t>(signature.groups.size());
  arguments.n = signature.groups[0].n;
  arguments.k = signature.groups[0].k;
  arguments.types = signature.types;
  arguments.m_source = signature.m_source;
  if (signature.device_m()) {
    made->grid = static_cast<uint32_t>(multiprocessors_ * plan.ctas_per_multiprocessor);
    return made;
  }
  const std::vector<GroupEntry> groups = GroupTable(plan);
  const Schedule& schedule = plan.schedule;
  const int64_t tiles_at = SpacedBytes(groups);
  const int64_t begins_at = tiles_at + SpacedBytes(schedule.tiles);
  TETRAD_ASSIGN_OR_RETURN(made->tables,
                          memory_.Allocate(begins_at + SpacedBytes(schedule.cta_begin)));
  TETRAD_RETURN_IF_ERROR(memory_.Write(made->tables, 0, std::as_bytes(std::span(groups))));
  TETRAD_RETURN_IF_ERROR(
      memory_.Write(made->tables, tiles_at, std::as_bytes(std::span(schedule.tiles))));
  TETRAD_RETURN_IF_ERROR(
      memory_.Write(made->tables, begins_at, std::as_bytes(std::span(schedule.cta_begin))));
  const uint64_t base = made->tables.address();
  arguments.groups = reinterpret_cast<const GroupEntry*>(base);
  arguments.tiles = reinterpret_cast<const Tile*>(base + static_cast<uint64_t>(tiles_at));
  arguments.cta_begin = reinterpret_cast<const int32_t*>(base + static_cast<uint64_t>(begins_at));
  made->grid = static_cast<uint32_t>(std::max(schedule.ctas(), 1));
  return made;
}

absl::StatusOr<std::shared_ptr<const PlanOnDevice>> PlansOnDevice::Get(
    const std::shared_ptr<const Plan>& plan, const uint8_t* b, const uint8_t* b_scales) {
  const auto find = [&]() -> std::shared_ptr<const PlanOnDevice> {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(plan.get());
    // A plan that is gone may have lain where this one does.
    if (at == entries_.end() || at->second.plan.lock() != plan) return nullptr;
    return at->second.on_device;
  };
  if (auto found = find()) return found;
  std::lock_guard building(building_);
  if (auto found = find()) return found;
  {
    // First: their memory may be what is lacking.
    std::lock_guard lock(mutex_);
    RemoveGone();
  }
  TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<PlanOnDevice> made, Place(*plan));
  TETRAD_RETURN_IF_ERROR(proof_.Prove(*plan, *made, b, b_scales));
  std::lock_guard lock(mutex_);
  ++proofs_;
  entries_.insert_or_assign(plan.get(), Entry{plan, made});
  return made;
}

void PlansOnDevice::RemoveGone() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.plan.expired(); });
}

PlansOnDevice::Stats PlansOnDevice::stats() {
  std::lock_guard lock(mutex_);
  RemoveGone();
  Stats stats{.plans = static_cast<int64_t>(entries_.size()), .proofs = proofs_};
  for (const auto& [plan, entry] : entries_) stats.table_bytes += entry.on_device->tables.bytes();
  return stats;
}

}  // namespace tetrad::cuda
