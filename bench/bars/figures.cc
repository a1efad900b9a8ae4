// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "bench/bars/correctness_figures.h"
#include "bench/bars/figure.h"
#include "bench/bars/rpc_figures.h"

namespace tetrad::bars {
namespace {

struct Entry {
  std::string_view id;
  Figure figure;
};

constexpr Entry kFigures[] = {
    {"main.contest.bit_equal", ContestBitEqual},
    {"main.random.ok", RandomOk},
    {"main.rpc.unary_ratio", RpcUnaryRatio},
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
