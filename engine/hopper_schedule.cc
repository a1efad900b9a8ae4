// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hopper_schedule.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/live_tiles.h"
#include "kernels/sm90/packed_weights.h"

namespace tetrad {
namespace {

constexpr int64_t kMaxTiles = std::numeric_limits<int32_t>::max();  // of a CTA

// Whether the activations are a matrix of tokens as they lie.
bool IsOneMatrix(const Signature& signature, const OperandLayout& layout, int32_t pitch) {
  if (signature.types.a_type == ActivationType::kNvfp4) return false;
  if (signature.device_m()) return true;
  for (size_t g = 0; g < signature.groups.size(); ++g) {
    const auto [m, n, k] = signature.groups[g];
    if (m > 0 && (k != pitch || layout.groups[g].a % (int64_t{k} * 2) != 0)) return false;
  }
  return true;
}

// The largest K of a group that may have rows.
int32_t Pitch(const Signature& signature) {
  if (signature.device_m()) return signature.groups[0].k;
  int32_t pitch = 0;
  for (const GroupShape& shape : signature.groups) {
    if (shape.m > 0) pitch = std::max(pitch, shape.k);
  }
  return std::max<int32_t>(pitch, kKMultiple);
}

// The groups with rows; those whose operands go on where the last one's ended are one with it.
std::vector<sm90::PrepareGroup> PrepareGroups(const Signature& signature,
                                              const OperandLayout& layout) {
  const ProblemTypes& types = signature.types;
  std::vector<sm90::PrepareGroup> groups;
  int64_t a_end = -1, scales_end = -1;
  for (size_t g = 0; g < signature.groups.size(); ++g) {
    const GroupShape& shape = signature.groups[g];
    const GroupOffsets& at = layout.groups[g];
    if (shape.m == 0) continue;
    const bool nvfp4 = types.a_type == ActivationType::kNvfp4;
    const bool goes_on =
        !groups.empty() && groups.back().k == shape.k && at.a == a_end &&
        (!nvfp4 || (types.a_scale_layout == ScaleLayout::kLinear && at.a_scales == scales_end));
    if (!goes_on) {
      groups.push_back({.a = at.a,
                        .a_scales = nvfp4 ? at.a_scales : 0,
                        .row = static_cast<int32_t>(at.row),
                        .k = shape.k});
    }
    a_end = at.a + ActivationBytes(types.a_type, shape.m, shape.k);
    scales_end = at.a_scales + ScalePlaneBytes(ScaleLayout::kLinear, shape.m, shape.k);
  }
  return groups;
}

absl::Status LayOutLive(const Signature& signature, int32_t multiprocessors,
                        const sm90::Instance* instance, HopperSchedule& schedule) {
  const sm90::LiveShape shape = {.m_source = signature.m_source,
                                 .capacity_rows = signature.capacity_rows,
                                 .groups = static_cast<int32_t>(signature.groups.size()),
                                 .n = signature.groups[0].n,
                                 .k = signature.groups[0].k};
  schedule.tiles.instance =
      instance != nullptr ? instance : &sm90::ChooseLiveInstance(shape, multiprocessors);
  schedule.live_ctas = multiprocessors;
  schedule.covers = sm90::CoverTable(*schedule.tiles.instance, shape.k);
  const int64_t most = sm90::MostTilesPerCta(*schedule.tiles.instance, shape, multiprocessors);
  if (most > kMaxTiles) {
    return FieldError({"signature.capacity.rows", absl::StrCat(signature.capacity_rows),
                       absl::StrCat("at most ", kMaxTiles, " tiles a multiprocessor")},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("capacity: rows=", signature.capacity_rows, " may need ", most,
                                   " tiles a multiprocessor, the limit is ", kMaxTiles));
  }
  schedule.tiles_per_cta = static_cast<int32_t>(most);
  return absl::OkStatus();
}

void LayOutHost(const Signature& signature, const OperandLayout& layout, int32_t multiprocessors,
                const sm90::Instance* instance, HopperSchedule& schedule) {
  const int64_t row_bytes = int64_t{schedule.pitch} * 2;
  std::vector<sm90::TileGroup> groups;
  uint32_t block = 0;
  for (size_t g = 0; g < signature.groups.size(); ++g) {
    const auto [m, n, k] = signature.groups[g];
    const GroupOffsets& at = layout.groups[g];
    groups.push_back({.m = m,
                      .n = n,
                      .k = k,
                      .token = static_cast<int32_t>(schedule.prepared ? at.row : at.a / row_bytes),
                      .scale_row = static_cast<int32_t>(at.row),
                      .block = block,
                      .c = at.c,
                      .c_stride = at.c_stride});
    block += static_cast<uint32_t>(sm90::PackedBlocks(n, k));
  }
  schedule.tiles = instance != nullptr
                       ? sm90::CutTiles(*instance, signature.types, groups, multiprocessors)
                       : sm90::ChooseTiles(signature.types, groups, multiprocessors);
  schedule.tiles_per_cta = schedule.tiles.tiles_per_cta;
  if (schedule.prepared) schedule.prepare = PrepareGroups(signature, layout);
}

}  // namespace

int64_t HopperSchedule::host_bytes() const {
  return static_cast<int64_t>(tiles.entries.size() * sizeof(sm90::TileEntry) +
                              prepare.size() * sizeof(sm90::PrepareGroup) +
                              covers.size() * sizeof(uint32_t));
}

int64_t HopperSchedule::tile_count() const {
  return std::ranges::count_if(tiles.entries,
                               [](const sm90::TileEntry& tile) { return tile.width >= 0; });
}

double HopperSchedule::balance() const {
  if (tiles.ctas == 0) return 1;
  return static_cast<double>(tiles.longest_cycles) / static_cast<double>(tiles.mean_cycles);
}

absl::StatusOr<HopperSchedule> LayOutHopper(const Signature& signature, const OperandLayout& layout,
                                            int32_t multiprocessors,
                                            const sm90::Instance* instance) {
  HopperSchedule schedule;
  schedule.pitch = Pitch(signature);
  schedule.prepared = !IsOneMatrix(signature, layout, schedule.pitch);
  schedule.rows = schedule.prepared ? layout.rows : layout.a_bytes / (int64_t{schedule.pitch} * 2);
  if (signature.device_m()) {
    TETRAD_RETURN_IF_ERROR(LayOutLive(signature, multiprocessors, instance, schedule));
  } else {
    LayOutHost(signature, layout, multiprocessors, instance, schedule);
  }
  return schedule;
}

std::string Explain(const HopperSchedule& schedule, const Signature& signature,
                    int32_t multiprocessors) {
  const sm90::Instance& instance = *schedule.tiles.instance;
  std::string text = absl::StrCat(instance.name, " (widths");
  for (const int32_t width : instance.widths) {
    if (width > 0) absl::StrAppend(&text, " ", width);
  }
  absl::StrAppend(&text, ")");
  if (signature.device_m()) {
    absl::StrAppend(&text, ": rows are read at launch, each of ", multiprocessors,
                    " CTAs forms its tiles from the live counts");
  } else {
    std::array<int64_t, sm90::kMaxWidths> counts{};
    for (const sm90::TileEntry& tile : schedule.tiles.entries) {
      if (tile.width >= 0) ++counts[static_cast<size_t>(tile.width)];
    }
    absl::StrAppend(&text, ": ", schedule.tiles.ctas, " of ", multiprocessors, " CTAs, tiles");
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) absl::StrAppend(&text, " ", counts[i], " x ", instance.widths[i]);
    }
    // Not StrFormat(): that does not survive a lack of memory.
    char balance[32];
    std::snprintf(balance, sizeof(balance), "%.2f", schedule.balance());
    absl::StrAppend(&text, ", longest CTA ", schedule.tiles.longest_cycles,
                    " cycles predicted, the least of all instances, ", balance, " of the mean");
  }
  if (schedule.prepared) {
    absl::StrAppend(&text, "; activations are ",
                    signature.types.a_type == ActivationType::kNvfp4 ? "expanded" : "gathered",
                    " before");
  }
  return text;
}

}  // namespace tetrad
