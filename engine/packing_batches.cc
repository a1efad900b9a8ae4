// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/packing_batches.h"

#include <algorithm>

#include "engine/support/status_macros.h"
#include "kernels/sm90/packed_weights.h"

namespace tetrad {
namespace {

// Of the codes in scratch: what copies are fast at, and kernels ask for no more.
constexpr int64_t kScratchAlignment = 256;

// What packing from the last group to the first relies on. A packed matrix is
// ceil(n / 128) * ceil(k / 64) blocks, of which each has room for the codes and scales of
// 128 x 64, and a plane of blocked scales has a tile for each; a linear one has no more.
static_assert(sm90::kBlockBytes == CodeBytes(sm90::kBlockRows, sm90::kBlockK) + kScaleTileBytes);
static_assert(kScaleTileRows == sm90::kBlockRows &&
              ScalePlaneBytes(ScaleLayout::kBlocked, sm90::kBlockRows, sm90::kBlockK) ==
                  kScaleTileBytes);

}  // namespace

PackingBatches::PackingBatches(std::span<const GroupDims> groups, ScaleLayout scale_layout)
    : groups_(groups), scale_layout_(scale_layout), packed_bytes_(PackedWeightBytes(groups)) {
  for (const auto [n, k] : groups) {
    code_bytes_ += CodeBytes(n, k);
    scale_bytes_ += ScalePlaneBytes(scale_layout, n, k);
    largest_code_bytes_ = std::max(largest_code_bytes_, CodeBytes(n, k));
  }
}

int64_t PackingBatches::scratch_codes() const { return RoundUp(scale_bytes_, kScratchAlignment); }

int64_t PackingBatches::scratch_bytes() const {
  return scratch_codes() + std::min(code_bytes_, std::max(kBatchBytes, largest_code_bytes_));
}

absl::Status PackingBatches::ForEach(
    int64_t scratch_bytes, absl::FunctionRef<absl::Status(const PackingBatch&)> pack) const {
  TETRAD_CHECK(scratch_bytes >= least_scratch_bytes());
  const int64_t room = scratch_bytes - scratch_codes();
  PackingBatch batch = {.begin = groups_.size(),
                        .codes = code_bytes_,
                        .scales = scale_bytes_,
                        .packed = packed_bytes_};
  while (batch.begin > 0) {
    batch.end = batch.begin;
    batch.code_bytes = 0;
    while (batch.begin > 0) {
      const auto [n, k] = groups_[batch.begin - 1];
      if (batch.code_bytes + CodeBytes(n, k) > room) break;
      --batch.begin;
      batch.code_bytes += CodeBytes(n, k);
      batch.codes -= CodeBytes(n, k);
      batch.scales -= ScalePlaneBytes(scale_layout_, n, k);
      batch.packed -= sm90::PackedBytes(n, k);
    }
    TETRAD_RETURN_IF_ERROR(pack(batch));
  }
  return absl::OkStatus();
}

}  // namespace tetrad
