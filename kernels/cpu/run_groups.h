// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests and benchmarks of the CPU kernels: a whole grouped GEMM at once,
// cut into tiles of a given size, on threads of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/cpu/grouped_gemm.h"

namespace tetrad::cpu {

struct Tiling {
  int32_t rows = kMaxTileRows;
  int32_t columns = kMaxTileColumns;
};

inline std::vector<Tile> TilesOf(std::span<const GroupProblem> groups, const Tiling& tiling) {
  std::vector<Tile> tiles;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t column = 0; column < groups[g].n; column += tiling.columns) {
      for (int32_t row = 0; row < groups[g].m; row += tiling.rows) {
        tiles.push_back({static_cast<int32_t>(g), row, std::min(tiling.rows, groups[g].m - row),
                         column, std::min(tiling.columns, groups[g].n - column)});
      }
    }
  }
  return tiles;
}

inline void RunGroups(InstructionSet set, const ProblemTypes& types,
                      std::span<const GroupProblem> groups, const Tiling& tiling, int threads = 1) {
  const std::vector<Tile> tiles = TilesOf(groups, tiling);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    const AlignedBuffer scratch(kScratchBytes);
    for (size_t i = next++; i < tiles.size(); i = next++) {
      RunTile(set, types, groups[tiles[i].group], tiles[i], scratch.bytes());
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

}  // namespace tetrad::cpu
