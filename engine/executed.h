// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Executed: what an execution ends with: its times, and its output, still in
// device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "engine/staging.h"

namespace tetrad {

// A finished launch and its output, still in device memory. Must be gone before
// the engine is.
class Executed {
 public:
  Executed() = default;  // of nothing, to be assigned to
  Executed(StagingLease staging, Timings timings);
  // Of the output to copy: 0 where it was asked for in a block.
  int64_t output_bytes() const;
  // Copies the output, groups concatenated, gaps zero. `out` has output_bytes().
  absl::Status CopyOutput(std::span<std::byte> out) const;
  const Timings& timings() const { return timings_; }
  double share() const;  // floor over device time
  const Plan& plan() const { return staging_.plan(); }
  std::string weights() const;  // name@version used

 private:
  StagingLease staging_;
  Timings timings_;
};

}  // namespace tetrad
