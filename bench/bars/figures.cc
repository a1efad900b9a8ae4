// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "bench/bars/capture_figures.h"
#include "bench/bars/correctness_figures.h"
#include "bench/bars/figure.h"
#include "bench/bars/rpc_figures.h"
#ifdef TETRAD_BARS_CUDA
#include "bench/bars/cuda/figures.h"
#endif

namespace tetrad::bars {
namespace {

struct Entry {
  std::string_view id;
  Figure figure;
};

constexpr Entry kFigures[] = {
    {"main.contest.bit_equal", ContestBitEqual}, {"main.random.ok", RandomOk},
    {"main.captures_per_1000", CapturesPer1000}, {"main.rpc.unary_ratio", RpcUnaryRatio},
#ifdef TETRAD_BARS_CUDA
    {"main.replay.different", ReplayDifferent},  {"main.replay.memory_growth", ReplayMemoryGrowth},
    {"main.replay.ratio", ReplayRatio},          {"main.portable.S1", PortableS1},
#endif
};

}  // namespace

Figure FindFigure(std::string_view id) {
  const auto found = std::ranges::find(kFigures, id, &Entry::id);
  return found == std::end(kFigures) ? nullptr : found->figure;
}

std::vector<std::string_view> MeasuredIds() {
  std::vector<std::string_view> ids;
  for (const Entry& entry : kFigures) ids.push_back(entry.id);
  return ids;
}

}  // namespace tetrad::bars
