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
#include "bench/bars/cuda/sm90_figures.h"
#endif

namespace tetrad::bars {
namespace {

struct Entry {
  std::string_view id;
  Figure figure;
};

#ifdef TETRAD_BARS_CUDA
// The figures of a shape of kSm90Shapes. Goals are judged by the same values.
#define TETRAD_SM90_SHARES(name, shape)                                     \
  {"sm90." name ".fp16", Sm90Share<shape, ActivationType::kFp16>},          \
      {"sm90." name ".fp16.goal", Sm90Share<shape, ActivationType::kFp16>}, \
      {"sm90." name ".bf16", Sm90Share<shape, ActivationType::kBf16>},      \
      {"sm90." name ".nvfp4", Sm90Share<shape, ActivationType::kNvfp4>}, {  \
    "sm90." name ".nvfp4.goal", Sm90Share<shape, ActivationType::kNvfp4>    \
  }
#endif

constexpr Entry kFigures[] = {
    {"main.contest.bit_equal", ContestBitEqual},
    {"main.random.ok", RandomOk},
    {"sm90.random.ok", Sm90RandomOk},
    {"main.captures_per_1000", CapturesPer1000},
    {"main.rpc.unary_ratio", RpcUnaryRatio},
    {"service.rpc.stream_ratio", RpcStreamRatio},
#ifdef TETRAD_BARS_CUDA
    {"main.replay.different", ReplayDifferent},
    {"main.replay.memory_growth", ReplayMemoryGrowth},
    {"main.replay.ratio", ReplayRatio},
    {"main.portable.S1", PortableS1},
    TETRAD_SM90_SHARES("S1", 0),
    TETRAD_SM90_SHARES("S2", 1),
    TETRAD_SM90_SHARES("S3", 2),
    TETRAD_SM90_SHARES("S4", 3),
    TETRAD_SM90_SHARES("P1", 4),
    TETRAD_SM90_SHARES("D1", 5),
    TETRAD_SM90_SHARES("D2", 6),
    TETRAD_SM90_SHARES("D3", 7),
    {"sm90.peers16", Sm90Peers16},
    {"sm90.peers_vs_exact", Sm90PeersVsExact},
    {"sm90.device_m", Sm90DeviceM},
    {"sm90.invariance.different", Sm90InvarianceDifferent},
    {"sm90.replay.different", Sm90ReplayDifferent},
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
