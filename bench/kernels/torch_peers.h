// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch makes of shapes, where the machine has it: a child runs
// torch_peers.py to its end. Times are cold, a call. One thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "bench/bars/figure.h"
#include "kernels/problem.h"

namespace tetrad::bars {

struct PeerShape {
  std::string id;
  std::vector<GroupShape> groups;  // one N and K
};

// id -> peer -> its time, or why there is none.
using PeerTimes = std::map<std::string, std::map<std::string, absl::StatusOr<Measured>>>;

inline constexpr char kTorchGrouped[] = "torch_grouped_mm";

// `script` is the path of torch_peers.py. FAILED_PRECONDITION without python3 or torch.
absl::StatusOr<PeerTimes> MeasureTorchPeers(const std::string& script,
                                            std::span<const PeerShape> shapes);

// What the script reads and writes. INVALID_ARGUMENT where it is not that. Pure.
std::string TorchInput(std::span<const PeerShape> shapes);
absl::StatusOr<PeerTimes> ParseTorchOutput(std::string_view text);

}  // namespace tetrad::bars
