// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU of the sm90.* figures.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "bench/kernels/gpu.h"

namespace tetrad::bars {

// FAILED_PRECONDITION where it is none of capability 9.0.
inline absl::StatusOr<std::unique_ptr<Gpu>> OpenSm90(const Setting& setting) {
  auto gpu = Gpu::Open(setting);
  if (!gpu.ok() || (*gpu)->device().limits().capability == "sm_90") return gpu;
  return absl::FailedPreconditionError(absl::StrCat(
      "this figure needs capability 9.0, the device has ", (*gpu)->device().limits().capability));
}

}  // namespace tetrad::bars
