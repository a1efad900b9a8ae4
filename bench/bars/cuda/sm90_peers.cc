// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "bench/bars/cuda/sm90_figures.h"
#include "bench/bars/cuda/sm90_gpu.h"
#include "bench/kernels/library_peers.h"
#include "bench/kernels/torch_peers.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr size_t kPeerShapes[] = {0, 1, 2, 3, 5, 6, 7};  // S1 to S4, D1 to D3
constexpr size_t kExactShapes = 4;                       // S1 to S4

// Microseconds of another machine's run: Humming's NVFP4 kernel, and cuBLAS on streams
// beside it, by which it is scaled to this run.
struct Recorded {
  double humming_us, streams_us;
};
constexpr Recorded kRecorded[kExactShapes] = {
    {150.7, 174.7}, {78.7, 87.3}, {34.2, 34.3}, {19.7, 18.5}};

std::string KeyOf(const NamedShape& shape, std::string_view what) {
  return absl::StrCat("peers.", std::string(shape.name), ".", std::string(what));
}

absl::Status TimePeers(const Setting& setting, const NamedShape& shape) {
  TETRAD_ASSIGN_OR_RETURN(const auto gpu, OpenSm90(setting));
  TETRAD_ASSIGN_OR_RETURN(const Cublas cublas, Cublas::Load());
  if (!cublas.has_grouped()) {
    return absl::FailedPreconditionError(
        absl::StrCat(cublas.path(), " has no cublasGemmGroupedBatchedEx"));
  }
  TETRAD_ASSIGN_OR_RETURN(const auto sets, ShapeSets::Make(*gpu, shape.groups, setting.threads));
  TETRAD_ASSIGN_OR_RETURN(const auto problem, TimedProblem::Make(*gpu, *sets, {}));
  TETRAD_RETURN_IF_ERROR(problem->Check());
  TETRAD_ASSIGN_OR_RETURN(const auto peers, LibraryPeers::Make(*gpu, cublas, *sets, *problem));
  TETRAD_ASSIGN_OR_RETURN(const LibraryRatios ratios, TimeLibraryPeers(*problem, *peers));
  Memo& memo = *setting.memo;
  memo.emplace(KeyOf(shape, "ours_us"), MedianOf(ratios.ours_us));
  memo.emplace(KeyOf(shape, "streams_us"), Measured{.value = ratios.streams.ours()});
  memo.emplace(KeyOf(shape, "streams"), ratios.streams.Finish());
  memo.emplace(KeyOf(shape, "grouped"), ratios.grouped.Finish());
  std::fprintf(stderr,
               "tetrad-bars: %s: ours %.2f us, cuBLAS streams %.2f us, grouped %.2f us (%s)\n",
               std::string(shape.name).c_str(), ratios.streams.theirs(), ratios.streams.ours(),
               ratios.grouped.ours(), cublas.path().c_str());
  return absl::OkStatus();
}

// Measured where no figure of this run did it yet.
absl::StatusOr<Measured> Peer(const Setting& setting, const NamedShape& shape,
                              std::string_view what) {
  if (!setting.memo->contains(KeyOf(shape, "ours_us"))) {
    TETRAD_RETURN_IF_ERROR(TimePeers(setting, shape));
  }
  return setting.memo->at(KeyOf(shape, what));
}

// The peer's time over ours.
absl::StatusOr<Measured> TorchRatio(const Setting& setting, const PeerTimes& torch,
                                    const NamedShape& shape) {
  const auto of_shape = torch.find(std::string(shape.name));
  if (of_shape == torch.end() || !of_shape->second.contains(kTorchGrouped)) {
    return absl::InternalError("torch_peers.py left a shape out");
  }
  for (const auto& peer : of_shape->second) {
    std::fprintf(stderr, "tetrad-bars: %s: %s: %s\n", std::string(shape.name).c_str(),
                 peer.first.c_str(),
                 peer.second.ok() ? absl::StrFormat("%.2f us", peer.second->value).c_str()
                                  : std::string(peer.second.status().message()).c_str());
  }
  TETRAD_ASSIGN_OR_RETURN(const Measured theirs, of_shape->second.at(kTorchGrouped));
  TETRAD_ASSIGN_OR_RETURN(const Measured ours, Peer(setting, shape, "ours_us"));
  return Measured{.value = theirs.value / ours.value,
                  .low = theirs.low / ours.value,
                  .high = theirs.high / ours.value};
}

}  // namespace

absl::StatusOr<Measured> Sm90Peers16(const Setting& setting) {
  if (setting.device != DeviceKind::kCuda) {
    return absl::FailedPreconditionError("this figure needs a CUDA device");
  }
  std::vector<PeerShape> shapes;
  for (const size_t i : kPeerShapes) {
    const NamedShape& shape = kSm90Shapes[i];
    shapes.push_back({std::string(shape.name), {shape.groups.begin(), shape.groups.end()}});
  }
  // While this process has no device open.
  TETRAD_ASSIGN_OR_RETURN(const PeerTimes torch,
                          MeasureTorchPeers(setting.programs + "/../share/torch_peers.py", shapes));
  Measured smallest;
  for (const size_t i : kPeerShapes) {
    const NamedShape& shape = kSm90Shapes[i];
    for (const std::string_view what : {"streams", "grouped", kTorchGrouped}) {
      TETRAD_ASSIGN_OR_RETURN(Measured ratio, what == kTorchGrouped
                                                  ? TorchRatio(setting, torch, shape)
                                                  : Peer(setting, shape, what));
      if (!smallest.remark.empty() && ratio.value >= smallest.value) continue;
      ratio.remark = absl::StrCat(std::string(shape.name), ": ", std::string(what));
      smallest = ratio;
    }
  }
  return smallest;
}

absl::StatusOr<Measured> Sm90PeersVsExact(const Setting& setting) {
  Measured smallest;
  for (size_t i = 0; i < kExactShapes; ++i) {
    const NamedShape& shape = kSm90Shapes[i];
    TETRAD_ASSIGN_OR_RETURN(const Measured ours, Peer(setting, shape, "ours_us"));
    TETRAD_ASSIGN_OR_RETURN(const Measured streams, Peer(setting, shape, "streams_us"));
    const double exact_us = kRecorded[i].humming_us * streams.value / kRecorded[i].streams_us;
    if (!smallest.remark.empty() && exact_us / ours.value >= smallest.value) continue;
    smallest = {.value = exact_us / ours.value,
                .low = exact_us / ours.high,
                .high = exact_us / ours.low,
                .remark = absl::StrFormat("%s: %.2f us over %.2f us", std::string(shape.name),
                                          exact_us, ours.value)};
  }
  return smallest;
}

}  // namespace tetrad::bars
