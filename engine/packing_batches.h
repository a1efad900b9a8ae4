// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PackingBatches: the order in which weights are packed in the memory they were written to.
//
// Packed, a group has codes and scales, in whole blocks, so it takes at least what its plain
// codes and scales take, and begins nowhere before its plain codes. Groups are therefore
// packed from the last to the first: a packed group lies over nothing but plain codes of its
// own or of groups packed before, and plain scales. Both are in scratch by then: the scales
// of all groups, put there at the very beginning, and the codes of the groups at hand, which
// are packed from there. Neighbouring groups go together, as many as scratch holds the codes of.
//
// Scratch for batches of 64 MiB of codes is an eighth of the codes (the scales; more where groups
// of few rows have blocked planes) and 64 MiB. A larger group needs scratch for all of itself: of
// one group alone, that is as much as its plain form takes.
//
// A value that refers to the groups it was made of; allocates nothing; const members are
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "engine/signature.h"

namespace tetrad {

// Groups [begin, end), and where their codes, scales and packed form begin in those of all
// groups, concatenated.
struct PackingBatch {
  size_t begin = 0, end = 0;
  int64_t codes = 0, scales = 0, packed = 0;
  int64_t code_bytes = 0;
};

class PackingBatches {
 public:
  // Of codes, where no group has more.
  static constexpr int64_t kBatchBytes = int64_t{64} << 20;

  PackingBatches(std::span<const GroupDims> groups, ScaleLayout scale_layout);

  std::span<const GroupDims> groups() const { return groups_; }
  ScaleLayout scale_layout() const { return scale_layout_; }
  // Of all groups.
  int64_t code_bytes() const { return code_bytes_; }
  int64_t scale_bytes() const { return scale_bytes_; }
  int64_t packed_bytes() const { return packed_bytes_; }

  // Scratch holds the scales from its start on, and a batch's codes from here on.
  int64_t scratch_codes() const;
  // What it has to be at least, and for batches of kBatchBytes.
  int64_t least_scratch_bytes() const { return scratch_codes() + largest_code_bytes_; }
  int64_t scratch_bytes() const;
  // Calls `pack` for every batch, the last groups first, until it fails. Fewer than
  // 2 * code_bytes() / (scratch_bytes - scratch_codes()) + 2 of them.
  absl::Status ForEach(int64_t scratch_bytes,
                       absl::FunctionRef<absl::Status(const PackingBatch&)> pack) const;

 private:
  const std::span<const GroupDims> groups_;
  const ScaleLayout scale_layout_;
  int64_t code_bytes_ = 0, scale_bytes_ = 0, packed_bytes_ = 0;
  int64_t largest_code_bytes_ = 0;  // of one group
};

}  // namespace tetrad
