// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device-side M: what a host decides ahead of the live counts. Which instance, how each
// number of rows is covered by its widths, and how long a CTA's list can get. The CTAs
// themselves then form their lists (live_tiles.cuh): tiles of the widest width first,
// over all groups, then those of the next, dealt in turn.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/nvfp4.h"
#include "kernels/problem.h"
#include "kernels/sm90/instances.h"

namespace tetrad::sm90 {

// Rows that the table covers; of a group with more, whole tiles of the widest width are
// taken off first.
inline constexpr int32_t kCoverRows = 512;

// How many those are.
TETRAD_HOST_DEVICE constexpr int32_t WholeTiles(int32_t rows, int32_t widest) {
  return rows <= kCoverRows ? 0 : (rows - kCoverRows + widest - 1) / widest;
}

// Entry r, for r in 0..kCoverRows: tiles of each width that cover r rows in the cheapest
// way (TileCycles), byte w for width w.
std::vector<uint32_t> CoverTable(const Instance& instance, int32_t k);

struct LiveShape {
  MSource m_source = MSource::kCounts;
  int64_t capacity_rows = 0;  // as DeviceMProblem says
  int32_t groups = 0;
  int32_t n = 0;
  int32_t k = 0;
};

// What is likely to suit the counts that come: chosen for a spread around the mean of
// capacity_rows / groups rows a group (with counts too, whose capacity is a bound for one
// group and mostly for all).
const Instance& ChooseLiveInstance(const LiveShape& shape, int32_t multiprocessors);

// Entries of a CTA's list with its end, whatever the counts. INT64_MAX is never exceeded:
// shapes are bounded by the data contract.
int64_t MostTilesPerCta(const Instance& instance, const LiveShape& shape, int32_t ctas);

}  // namespace tetrad::sm90
