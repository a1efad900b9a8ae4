// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The process metrics every Prometheus client library exposes under the same
// names: start time, processor time, resident memory, open files. Read from
// the kernel at each call; what cannot be read is left out.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"

namespace tetrad {

void AppendProcessMetrics(std::vector<prometheus::MetricFamily>& families);

}  // namespace tetrad
