// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Projection: the NVFP4 weights of one projection over all experts, read from a checkpoint.
//
// Opening checks types, shapes and global scales of all experts and reads no more than those
// scalars; codes and block scales are then read, in pieces of any size and by any number of
// threads, into the caller's memory, so no second copy of the weights exists. Block scales are
// checked as they are read.
//
// Refusals are INVALID_ARGUMENT (NOT_FOUND where nothing matches) and name the tensor, and the row
// and block of a bad scale. Immutable after Open(): thread-safe. Keeps its checkpoint's files open.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/projection_tensors.h"

namespace tetrad {

struct ProjectionOptions {
  // Insists on a dialect; kAuto takes the one the names follow.
  Dialect dialect = Dialect::kAuto;

  // Some producers write Inf as the input scale of experts that saw no token in calibration. Such
  // a scale is refused unless input scales are not wanted at all; then none is returned.
  bool ignore_input_scales = false;
};

struct ProjectionInfo {
  Dialect dialect = Dialect::kAuto;
  int64_t groups = 0;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<float> alpha;        // per group, as a factor whatever the dialect stores
  std::vector<float> input_scale;  // likewise; empty where absent or not wanted
  std::vector<std::string> notes;  // what an operator should know though nothing was refused
  uint64_t total_bytes = 0;        // codes and scales of all groups
};

class Projection {
 public:
  static absl::StatusOr<Projection> Open(std::shared_ptr<const Checkpoint> checkpoint,
                                         std::string_view pattern,
                                         const ProjectionOptions& options = {});

  const ProjectionInfo& info() const { return info_; }

  // Sizes of one group.
  uint64_t code_bytes() const { return code_bytes_; }
  uint64_t scale_bytes() const { return scale_bytes_; }

  // Fills `out` from byte `offset` of the packed codes [n, k/2] of a group.
  absl::Status ReadCodes(int64_t group, uint64_t offset, std::span<uint8_t> out) const;

  // Likewise of its linear scales [n, k/16]; a NaN or a set sign bit is refused.
  absl::Status ReadScales(int64_t group, uint64_t offset, std::span<uint8_t> out) const;

 private:
  // Where the bytes of one group lie.
  struct Plane {
    CheckpointTensor tensor;
    uint64_t offset;
  };

  absl::Status ReadPlane(int64_t group, const std::vector<Plane>& planes, uint64_t bytes,
                         uint64_t offset, std::span<uint8_t> out) const;
  absl::Status ReadTurned(const Plane& plane, uint64_t row_bytes, uint64_t offset,
                          std::span<uint8_t> out) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  ProjectionInfo info_;
  uint64_t code_bytes_ = 0;
  uint64_t scale_bytes_ = 0;
  bool transposed_ = false;  // stored [k/2, n] and [k/16, n], as some fused parameters are
  std::vector<Plane> codes_;
  std::vector<Plane> scales_;
};

// Opens the checkpoint in `directory` below `root` and one projection of it.
absl::StatusOr<Projection> OpenProjection(const Root& root, std::string_view directory,
                                          std::string_view pattern,
                                          const ProjectionOptions& options = {});

}  // namespace tetrad
