// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The sm90.* figures but sm90.random.ok: what the Hopper kernel reaches of its
// floors, beside its peers, and that its bits depend on what they may depend on.
//
// FAILED_PRECONDITION on a device that is not of capability 9.0, and where a peer or
// cuBLAS, by which floors are measured, is not installed. What one figure measures and
// others need too is kept in the setting's memo.
#pragma once

#include <array>
#include <cstddef>

#include "bench/bars/figure.h"
#include "kernels/shapes.h"

namespace tetrad::bars {

inline constexpr std::array<NamedShape, 8> kSm90Shapes = {{{"S1", kShapeS1},
                                                           {"S2", kShapeS2},
                                                           {"S3", kShapeS3},
                                                           {"S4", kShapeS4},
                                                           {"P1", kShapeP1},
                                                           {"D1", kShapeD1},
                                                           {"D2", kShapeD2},
                                                           {"D3", kShapeD3}}};

absl::StatusOr<Measured> MeasureSm90Share(const Setting& setting, const NamedShape& shape,
                                          ActivationType activations);
// Share of the floor, cold; the same under a limit and under a goal.
template <size_t kShape, ActivationType kActivations>
absl::StatusOr<Measured> Sm90Share(const Setting& setting) {
  return MeasureSm90Share(setting, kSm90Shapes[kShape], kActivations);
}

absl::StatusOr<Measured> Sm90Peers16(const Setting& setting);
absl::StatusOr<Measured> Sm90PeersVsExact(const Setting& setting);
absl::StatusOr<Measured> Sm90DeviceM(const Setting& setting);
absl::StatusOr<Measured> Sm90InvarianceDifferent(const Setting& setting);
absl::StatusOr<Measured> Sm90ReplayDifferent(const Setting& setting);

}  // namespace tetrad::bars
