// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_binding.h"

#include <algorithm>
#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad {

CpuBinding::CpuBinding(AllocationTable& memory, std::shared_ptr<const Plan> plan, int32_t ctas)
    : memory_(memory), plan_(std::move(plan)), ctas_(ctas), operands_(memory) {
  groups_.resize(plan_->signature.groups.size());
  if (plan_->signature.device_m()) tile_begin_.resize(groups_.size() + 1);
}

absl::StatusOr<std::unique_ptr<CpuBinding>> CpuBinding::Make(AllocationTable& memory,
                                                             std::shared_ptr<const Plan> plan,
                                                             const OperandBlocks& operands,
                                                             int32_t ctas) {
  std::unique_ptr<CpuBinding> binding(new CpuBinding(memory, std::move(plan), ctas));
  TETRAD_RETURN_IF_ERROR(binding->Rebind(operands));
  return binding;
}

absl::Status CpuBinding::Rebind(const OperandBlocks& operands) {
  BoundOperands fresh(memory_);
  TETRAD_RETURN_IF_ERROR(fresh.Pin(*plan_, operands));
  operands_.Swap(fresh);
  FormGroups();
  return absl::OkStatus();
}

void CpuBinding::FormGroups() {
  const Signature& signature = plan_->signature;
  if (signature.device_m()) return;  // formed from the live counts at Begin()
  const DeviceMProblem& stack = operands_.stack();
  const uint8_t* b = stack.b;
  const uint8_t* b_scales = stack.b_scales;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupShape& shape = signature.groups[g];
    const GroupOffsets& at = plan_->layout.groups[g];
    GroupProblem& group = groups_[g];
    group.m = shape.m;
    group.n = shape.n;
    group.k = shape.k;
    group.b = b;
    group.b_scales = b_scales;
    b += CodeBytes(shape.n, shape.k);
    b_scales += ScalePlaneBytes(signature.types.b_scale_layout, shape.n, shape.k);
    group.c_stride = at.c_stride;
    if (shape.m == 0) continue;  // no operands, and no arithmetic on null bases
    group.a = stack.a + at.a;
    if (stack.a_scales != nullptr) group.a_scales = stack.a_scales + at.a_scales;
    group.c = static_cast<std::byte*>(stack.c) + at.c;
    if (stack.row_scale != nullptr) group.row_scale = stack.row_scale + at.row;
  }
}

int64_t CpuBinding::Begin(uint32_t* error_word) {
  *error_word = 0;
  if (plan_->signature.device_m()) {
    cpu::ResolveDeviceM(operands_.stack(), plan_->signature.types, groups_, error_word);
    CutLiveTiles();
    return tile_begin_.back();
  }
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].alpha = operands_.stack().alpha[g];
  return static_cast<int64_t>(plan_->schedule.tiles.size());
}

void CpuBinding::Run(int64_t index, cpu::InstructionSet set, std::span<std::byte> scratch) const {
  const Schedule& schedule = plan_->schedule;
  const Tile tile =
      plan_->signature.device_m() ? LiveTile(index) : schedule.tiles[schedule.longest_first[index]];
  cpu::RunTile(set, plan_->signature.types, groups_[tile.group], tile, scratch);
}

void CpuBinding::CutLiveTiles() {
  const TileTraits& traits = plan_->tile;
  live_columns_ = traits.max_columns;
  while (true) {
    const int64_t column_tiles = CeilDiv(operands_.stack().n, live_columns_);
    int64_t tiles = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      tile_begin_[g] = tiles;
      tiles += CeilDiv(groups_[g].m, traits.max_rows) * column_tiles;
    }
    tile_begin_.back() = tiles;
    // Three tiles a CTA, claimed as CTAs come free, end within 4/3 of the mean.
    if (tiles >= 3 * ctas_ || live_columns_ <= traits.column_granule) return;
    live_columns_ = static_cast<int32_t>(std::max<int64_t>(
        RoundUp(live_columns_ / 2, traits.column_granule), traits.column_granule));
  }
}

Tile CpuBinding::LiveTile(int64_t index) const {
  const auto after = std::upper_bound(tile_begin_.begin(), tile_begin_.end(), index);
  const int32_t g = static_cast<int32_t>(after - tile_begin_.begin()) - 1;
  const GroupProblem& group = groups_[g];
  const int64_t within = index - tile_begin_[g];
  const int64_t column_tiles = CeilDiv(group.n, live_columns_);
  const int32_t row_tiles = static_cast<int32_t>(CeilDiv(group.m, plan_->tile.max_rows));
  const int32_t rows = static_cast<int32_t>(CeilDiv(group.m, row_tiles));
  Tile tile;
  tile.group = g;
  tile.row = static_cast<int32_t>(within / column_tiles) * rows;
  tile.rows = std::min(rows, group.m - tile.row);
  tile.column = static_cast<int32_t>(within % column_tiles) * live_columns_;
  tile.columns = std::min(live_columns_, group.n - tile.column);
  return tile;
}

}  // namespace tetrad
