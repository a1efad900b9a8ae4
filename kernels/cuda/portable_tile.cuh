// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// One tile as a CTA works on it: its addresses, formed of the group and the
// rectangle by one thread, and kept in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/problem.h"

namespace tetrad::cuda {

struct TileWork {
  const uint8_t* a;         // row 0 of the tile
  const uint8_t* b;         // column 0 of the tile
  const uint8_t* a_scales;  // the group's plane, or null
  const uint8_t* b_scales;  // the group's plane
  std::byte* c;             // element (0, 0) of the tile
  const float* row_scale;   // of row 0 of the tile, or null
  int64_t line_stride;      // elements from a row (column-major: column) of C to the next
  // Place in the group: blocked scales depend on it.
  int32_t row;
  int32_t column;
  int32_t rows;
  int32_t columns;
  int32_t k;
  float alpha;
};

// `tile` lies inside the group.
__device__ inline TileWork FormTileWork(const LaunchArguments& arguments, const GroupEntry& group,
                                        const Tile& tile) {
  const ProblemTypes& types = arguments.types;
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  TileWork work;
  work.a = arguments.a + group.a + ActivationBytes(types.a_type, tile.row, group.k);
  work.b = arguments.b + group.b + CodeBytes(tile.column, group.k);
  work.a_scales = arguments.a_scales + group.a_scales;
  work.b_scales = arguments.b_scales + group.b_scales;
  const int64_t line = row_major ? tile.row : tile.column;
  const int64_t along = row_major ? tile.column : tile.row;
  work.c =
      arguments.c + group.c + (line * group.c_stride + along) * OutputElementBytes(types.c_type);
  work.line_stride = group.c_stride;
  work.row_scale =
      arguments.row_scale == nullptr ? nullptr : arguments.row_scale + group.row + tile.row;
  work.row = tile.row;
  work.column = tile.column;
  work.rows = tile.rows;
  work.columns = tile.columns;
  work.k = group.k;
  work.alpha = arguments.alpha == nullptr ? 1.0f : arguments.alpha[tile.group];
  return work;
}

}  // namespace tetrad::cuda
