// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Plan: a signature with the kernel chosen for it, its schedule and its floor.
// Immutable once built; a pure function of (signature, device limits).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/floor.h"
#include "engine/hopper_schedule.h"
#include "engine/schedule.h"
#include "engine/signature.h"

namespace tetrad {

// What one kernel of a device takes and how it tiles. Every legal signature with the weights
// it reads: whether it is used depends on nothing else.
struct KernelTraits {
  std::string name;  // e.g. "cpu.avx512"
  TileTraits tile;
  int32_t ctas_per_multiprocessor = 1;  // as many lie on each of the device's `ctas` at a time
  bool packed_weights = false;  // reads them packed, and is laid out by HopperSchedule; else not
};

struct DeviceLimits {
  std::string uuid;
  std::string name;
  std::string capability;  // "cpu"
  int32_t ctas = 1;        // SMs or threads: what a schedule is laid out for
  int64_t memory_bytes = 0;
  int32_t lanes = 1;
  int32_t max_in_flight = 64;
  bool packs_weights = false;  // sealed weights are brought into ScaleLayout::kPacked
  DeviceRates rates;
  std::vector<KernelTraits> kernels;  // first that accepts a signature wins
};

struct Plan {
  Signature signature;
  OperandLayout layout;  // operands in device memory
  OperandLayout wire;    // operands and output of an inline request, concatenated
  std::string kernel;
  TileTraits tile;
  int32_t ctas_per_multiprocessor = 1;
  Schedule schedule;                     // empty with device-side M: tiles follow the live counts
  std::optional<HopperSchedule> hopper;  // instead of `schedule`, where weights are packed
  Floor floor;
  std::string explanation;

  // With host M, of whichever schedule there is.
  int64_t tiles() const;
  int32_t ctas() const;
  // Longest CTA over the mean, or the largest tile.
  double balance() const;

  // Host memory the plan holds, for budgets.
  int64_t host_bytes() const;
};

// Groups of operands start at multiples of this in staging memory.
inline constexpr int64_t kStagingAlignment = 128;

// INVALID_ARGUMENT or FAILED_PRECONDITION if no kernel of the device accepts
// the canonical `signature`.
absl::StatusOr<Plan> BuildPlan(const Signature& signature, const DeviceLimits& limits);

// A schedule of more tiles is refused: far beyond what one launch should be, and
// its host memory and time to lay out would be the client's to choose.
inline constexpr int64_t kMaxPlanTiles = 1 << 20;

}  // namespace tetrad
