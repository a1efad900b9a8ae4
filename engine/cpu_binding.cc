// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_binding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {

CpuBinding::CpuBinding(CpuMemory& memory, std::shared_ptr<const Plan> plan, int32_t ctas)
    : memory_(memory), plan_(std::move(plan)), ctas_(ctas) {}

CpuBinding::~CpuBinding() {
  for (const AllocationId id : pins_) memory_.Unpin(id);
}

absl::StatusOr<std::unique_ptr<CpuBinding>> CpuBinding::Make(CpuMemory& memory,
                                                             std::shared_ptr<const Plan> plan,
                                                             const OperandBlocks& operands,
                                                             int32_t ctas) {
  std::unique_ptr<CpuBinding> binding(new CpuBinding(memory, std::move(plan), ctas));
  TETRAD_RETURN_IF_ERROR(binding->PinOperands(operands));
  binding->FormGroups();
  return binding;
}

absl::Status CpuBinding::PinOperands(const OperandBlocks& operands) {
  const Signature& signature = plan_->signature;
  const OperandLayout& layout = plan_->layout;
  const int64_t groups = static_cast<int64_t>(signature.groups.size());
  stack_.m_source = signature.m_source;
  stack_.groups = static_cast<int32_t>(groups);
  stack_.n = signature.groups[0].n;
  stack_.k = signature.groups[0].k;
  stack_.capacity_rows = signature.capacity_rows;
  stack_.c_stride = layout.c_stride;

  const auto pin = [&]<typename T>(const char* name, const BlockRef& block, int64_t want,
                                   bool writable, T*& address) -> absl::Status {
    if (want == 0) return absl::OkStatus();
    if (block.bytes < want) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": block of ", block.bytes, " bytes, the plan needs ", want));
    }
    if (block.offset % kOperandAlignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": block offset ", block.offset,
                                                     " must be a multiple of ", kOperandAlignment));
    }
    auto pinned = memory_.Pin(block, writable);
    if (!pinned.ok()) {
      return absl::Status(pinned.status().code(),
                          absl::StrCat(name, ": ", pinned.status().message()));
    }
    pins_.push_back(block.allocation);
    address = reinterpret_cast<T*>(*pinned);
    return absl::OkStatus();
  };
  TETRAD_RETURN_IF_ERROR(pin("activations", operands.a, layout.a_bytes, false, stack_.a));
  TETRAD_RETURN_IF_ERROR(
      pin("activation_scales", operands.a_scales, layout.a_scale_bytes, false, stack_.a_scales));
  TETRAD_RETURN_IF_ERROR(
      pin("weights codes", operands.b, WeightCodeBytes(signature), false, stack_.b));
  TETRAD_RETURN_IF_ERROR(pin("weights scales", operands.b_scales, WeightScaleBytes(signature),
                             false, stack_.b_scales));
  std::byte* c = nullptr;
  TETRAD_RETURN_IF_ERROR(pin("output", operands.c, layout.c_bytes, true, c));
  stack_.c = c;
  TETRAD_RETURN_IF_ERROR(pin("alpha", operands.alpha, groups * 4, false, alpha_));
  const int64_t row_scale_bytes = signature.row_scale ? layout.rows * 4 : 0;
  TETRAD_RETURN_IF_ERROR(
      pin("row_scale", operands.row_scale, row_scale_bytes, false, stack_.row_scale));
  TETRAD_RETURN_IF_ERROR(
      pin("m_values", operands.m_values, layout.m_values * 4, false, stack_.m_values));
  stack_.alpha = alpha_;
  return absl::OkStatus();
}

void CpuBinding::FormGroups() {
  const Signature& signature = plan_->signature;
  groups_.resize(signature.groups.size());
  if (signature.device_m()) {
    tile_begin_.resize(groups_.size() + 1);
    return;  // formed from the live counts at Begin()
  }
  const uint8_t* b = stack_.b;
  const uint8_t* b_scales = stack_.b_scales;
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
    group.a = stack_.a + at.a;
    if (stack_.a_scales != nullptr) group.a_scales = stack_.a_scales + at.a_scales;
    group.c = static_cast<std::byte*>(stack_.c) + at.c;
    if (stack_.row_scale != nullptr) group.row_scale = stack_.row_scale + at.row;
  }
}

int64_t CpuBinding::Begin(uint32_t* error_word) {
  *error_word = 0;
  if (plan_->signature.device_m()) {
    cpu::ResolveDeviceM(stack_, plan_->signature.types, groups_, error_word);
    CutLiveTiles();
    return tile_begin_.back();
  }
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].alpha = alpha_[g];
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
    const int64_t column_tiles = CeilDiv(stack_.n, live_columns_);
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
