// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

// Counts the tiles of the coarsest cut, before any of them is laid out. Finer
// cuts for balance add a number bounded by the CTAs, not by the signature.
absl::Status CheckTiles(const Signature& signature, const TileTraits& traits) {
  int64_t tiles = 0;
  for (size_t g = 0; g < signature.groups.size(); ++g) {
    const GroupShape& shape = signature.groups[g];
    tiles += CeilDiv(shape.m, traits.max_rows) * CeilDiv(shape.n, traits.max_columns);
    if (tiles > kMaxPlanTiles) {
      return FieldError(
          {absl::StrCat("signature.exact.m[", g, "]"), absl::StrCat(shape.m),
           absl::StrCat("at most ", kMaxPlanTiles, " tiles in all"), static_cast<int64_t>(g)},
          Reason::kFieldOutOfRange,
          absl::StrCat("group ", g, ": m=", shape.m, " n=", shape.n, ": the groups so far need ",
                       tiles, " tiles of ", traits.max_rows, " x ", traits.max_columns,
                       ", the limit is ", kMaxPlanTiles));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Plan::tiles() const {
  return hopper.has_value() ? hopper->tile_count() : static_cast<int64_t>(schedule.tiles.size());
}

int32_t Plan::ctas() const { return hopper.has_value() ? hopper->tiles.ctas : schedule.ctas(); }

double Plan::balance() const { return hopper.has_value() ? hopper->balance() : schedule.balance(); }

int64_t Plan::host_bytes() const {
  return static_cast<int64_t>(sizeof(Plan) + signature.groups.size() * sizeof(GroupShape) +
                              (layout.groups.size() + wire.groups.size()) * sizeof(GroupOffsets) +
                              schedule.tiles.size() * (sizeof(Tile) + sizeof(int32_t)) +
                              schedule.cta_begin.size() * sizeof(int32_t) + explanation.size()) +
         (hopper.has_value() ? hopper->host_bytes() : 0);
}

absl::StatusOr<Plan> BuildPlan(const Signature& signature, const DeviceLimits& limits) {
  if (limits.kernels.empty()) {
    return ReasonError(
        Reason::kUnsupportedHere,
        absl::StrCat("device ", limits.uuid, " (", limits.capability, ") has no kernels"));
  }
  const bool packed = signature.types.b_scale_layout == ScaleLayout::kPacked;
  const auto found = std::ranges::find(limits.kernels, packed, &KernelTraits::packed_weights);
  if (found == limits.kernels.end()) {
    return ReasonError(Reason::kUnsupportedHere,
                       absl::StrCat("device ", limits.uuid, " (", limits.capability,
                                    ") has no kernel for ", packed ? "" : "un", "packed weights"));
  }
  const KernelTraits& kernel = *found;
  TETRAD_RETURN_IF_ERROR(CheckTiles(signature, kernel.tile));
  Plan plan;
  plan.signature = signature;
  plan.layout = LayOut(signature, kStagingAlignment);
  plan.wire = LayOut(signature, 1);
  plan.kernel = kernel.name;
  plan.tile = kernel.tile;
  plan.ctas_per_multiprocessor = kernel.ctas_per_multiprocessor;
  const int32_t ctas = limits.ctas * kernel.ctas_per_multiprocessor;
  plan.floor = ComputeFloor(signature, limits.rates);
  const char* const bound = plan.floor.compute_us >= plan.floor.memory_us ? "arithmetic" : "memory";
  if (packed) {
    TETRAD_ASSIGN_OR_RETURN(plan.hopper, LayOutHopper(signature, plan.layout, ctas));
    plan.explanation = absl::StrCat(kernel.name, ".", Explain(*plan.hopper, signature, ctas),
                                    "; bound by ", bound);
    return plan;
  }
  if (signature.device_m()) {
    plan.explanation =
        absl::StrCat(kernel.name, ": rows are read at launch; tiles of ", kernel.tile.max_rows,
                     " x ", kernel.tile.max_columns, " are formed from the live counts");
    return plan;
  }
  plan.schedule = LayOutTiles(signature.groups, kernel.tile, ctas);
  int32_t rows = 0, columns = 0;
  for (const Tile& tile : plan.schedule.tiles) {
    rows = std::max(rows, tile.rows);
    columns = std::max(columns, tile.columns);
  }
  // Not StrFormat(): that does not survive a lack of memory.
  char balance[32];
  std::snprintf(balance, sizeof(balance), "%.2f", plan.schedule.balance());
  plan.explanation = absl::StrCat(
      kernel.name, ": ", plan.schedule.tiles.size(), " tiles of at most ", rows, " x ", columns,
      " on ", ctas, " CTAs, longest CTA ", balance, " of the ideal; bound by ", bound);
  return plan;
}

}  // namespace tetrad
