// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/instance_of.h"

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "kernels/sm90/live_tiles.h"

namespace tetrad::bars {
namespace {

std::string NameOf(bool bf16, const sm90::Instance& instance) {
  return absl::StrCat(bf16 ? "bf16." : "fp16.", instance.name);
}

}  // namespace

std::string VariantOf(const Plan& plan) {
  if (!plan.hopper.has_value()) return plan.kernel;
  return NameOf(plan.signature.types.a_type == ActivationType::kBf16, *plan.hopper->tiles.instance);
}

std::vector<std::string> AllVariants() {
  std::vector<std::string> variants;
  for (const bool bf16 : {false, true}) {
    for (const sm90::Instance& instance : sm90::kInstances) {
      variants.push_back(NameOf(bf16, instance));
    }
  }
  return variants;
}

void UseInstance(const sm90::Instance& instance, int32_t multiprocessors, Plan& plan) {
  TETRAD_CHECK(plan.hopper.has_value());
  const Signature& signature = plan.signature;
  HopperSchedule& schedule = *plan.hopper;
  if (signature.device_m()) {
    const sm90::LiveShape shape = {.m_source = signature.m_source,
                                   .capacity_rows = signature.capacity_rows,
                                   .groups = static_cast<int32_t>(signature.groups.size()),
                                   .n = signature.groups[0].n,
                                   .k = signature.groups[0].k};
    schedule.tiles.instance = &instance;
    schedule.covers = sm90::CoverTable(instance, shape.k);
    schedule.tiles_per_cta =
        static_cast<int32_t>(sm90::MostTilesPerCta(instance, shape, multiprocessors));
    return;
  }
  const int64_t row_bytes = int64_t{signature.groups[0].k} * 2;
  std::vector<sm90::TileGroup> groups;
  uint32_t block = 0;
  for (size_t g = 0; g < signature.groups.size(); ++g) {
    const auto [m, n, k] = signature.groups[g];
    const GroupOffsets& at = plan.layout.groups[g];
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
  schedule.tiles = sm90::CutTiles(instance, signature.types, groups, multiprocessors);
  schedule.tiles_per_cta = schedule.tiles.tiles_per_cta;
}

}  // namespace tetrad::bars
