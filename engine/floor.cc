// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/floor.h"

#include <algorithm>

namespace tetrad {

Floor ComputeFloor(const Signature& s, const DeviceRates& rates) {
  Floor floor;
  const bool nvfp4 = s.types.a_type == ActivationType::kNvfp4;
  const double a_bytes_per_k = nvfp4 ? 0.5 + 1.0 / kScaleBlock : 2.0;
  const double c_bytes = static_cast<double>(OutputElementBytes(s.types.c_type));
  // Device-side M: the capacity, spread evenly over the groups.
  const double even_rows =
      static_cast<double>(s.rows()) / static_cast<double>(std::max<size_t>(s.groups.size(), 1));
  for (const GroupShape& shape : s.groups) {
    const double m = s.device_m() ? even_rows : shape.m;
    if (m == 0) continue;
    const double n = shape.n, k = shape.k;
    floor.flops += 2 * m * n * k;
    floor.bytes += n * k * (0.5 + 1.0 / kScaleBlock) + m * k * a_bytes_per_k + m * n * c_bytes;
    if (s.row_scale) floor.bytes += m * sizeof(float);
  }
  if (rates.flops_per_second > 0) floor.compute_us = floor.flops / rates.flops_per_second * 1e6;
  if (rates.read_bytes_per_second > 0) {
    floor.memory_us = floor.bytes / rates.read_bytes_per_second * 1e6;
  }
  return floor;
}

}  // namespace tetrad
