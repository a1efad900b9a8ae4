// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A signature as a client states it, and what it means with given weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/signature.h"
#include "engine/weights.h"

namespace tetrad {

// N, K, the groups and the scale layout of the weights come from `weights`,
// and m per group from `m`.
struct SignatureRequest {
  std::string weights;  // name or name@version
  ProblemTypes types;   // b_scale_layout is taken from the weights
  GroupForm form = GroupForm::kSeparate;
  MSource m_source = MSource::kHost;
  std::vector<int32_t> m;     // host M: one per group
  int64_t capacity_rows = 0;  // device-side M
  int64_t c_stride = 0;
  bool row_scale = false;
};

// Canonical, for `device` (UUID). INVALID_ARGUMENT names group, field, value
// and limit.
absl::StatusOr<Signature> SignatureFor(const SignatureRequest& request,
                                       const WeightsVersion& weights, const std::string& device,
                                       const SignatureLimits& limits);

// FAILED_PRECONDITION if `weights` are not of the shapes of `signature`.
absl::Status CheckWeightsFit(const Signature& signature, const WeightsVersion& weights);

}  // namespace tetrad
