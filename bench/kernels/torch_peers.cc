// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/torch_peers.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "bench/kernels/child_program.h"
#include "bench/kernels/rotation.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

// Only how many calls a graph makes follows from it.
constexpr double kAssumedBytesPerUs = 5e6;

}  // namespace

std::string TorchInput(std::span<const PeerShape> shapes) {
  nlohmann::json cases = nlohmann::json::array();
  for (const PeerShape& shape : shapes) {
    double bytes = 0;
    std::vector<int32_t> m;
    for (const GroupShape& g : shape.groups) {
      m.push_back(g.m);
      if (g.m > 0) bytes += 2.0 * (1.0 * g.n * g.k + 1.0 * g.m * g.k + 1.0 * g.m * g.n);
    }
    const int sets = SetsFor(bytes);
    cases.push_back({{"id", shape.id},
                     {"n", shape.groups[0].n},
                     {"k", shape.groups[0].k},
                     {"m", m},
                     {"sets", sets},
                     {"calls", CallsFor(sets, bytes / kAssumedBytesPerUs)}});
  }
  return cases.dump();
}

absl::StatusOr<PeerTimes> ParseTorchOutput(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("torch_peers.py: ", what));
  };
  if (!json.is_object()) return refuse("no JSON object");
  PeerTimes times;
  for (const auto& shape : json.items()) {
    if (!shape.value().is_object()) return refuse(shape.key());
    for (const auto& peer : shape.value().items()) {
      const nlohmann::json& value = peer.value();
      auto& to = times[shape.key()];
      if (value.is_string()) {
        to.emplace(peer.key(), absl::UnavailableError(value.get<std::string>()));
        continue;
      }
      const bool numbers = value.is_array() && value.size() == 3 && value[0].is_number() &&
                           value[1].is_number() && value[2].is_number();
      if (!numbers) return refuse(absl::StrCat(shape.key(), ".", peer.key()));
      to.emplace(peer.key(), Measured{.value = value[0].get<double>(),
                                      .low = value[1].get<double>(),
                                      .high = value[2].get<double>()});
    }
  }
  return times;
}

absl::StatusOr<PeerTimes> MeasureTorchPeers(const std::string& script,
                                            std::span<const PeerShape> shapes) {
  TETRAD_ASSIGN_OR_RETURN(const std::string output,
                          RunChild({"python3", script}, TorchInput(shapes)));
  return ParseTorchOutput(output);
}

}  // namespace tetrad::bars
