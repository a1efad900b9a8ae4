// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Floor: the time a signature cannot beat on a device whose multiply-add and
// memory-read rates were measured: the larger of FLOPs / rate and bytes / rate.
//
//   FLOPs = sum over groups of 2*m*n*k
//   bytes = codes and scales of weights of groups with m > 0, once
//         + activations and their scales as stored + outputs
//
// With device-side M the counts are not known at Prepare; the floor is then
// that of one request whose rows fill the capacity evenly (documented beside
// every number derived from it).
#pragma once

#include "engine/signature.h"

namespace tetrad {

struct DeviceRates {
  double flops_per_second = 0;
  double read_bytes_per_second = 0;
};

struct Floor {
  double flops = 0;
  double bytes = 0;
  double compute_us = 0;
  double memory_us = 0;
  double floor_us() const { return compute_us > memory_us ? compute_us : memory_us; }
};

// `signature` must be canonical. Rates of 0 give times of 0.
Floor ComputeFloor(const Signature& signature, const DeviceRates& rates);

}  // namespace tetrad
