// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TypeTiming: what was measured of one shape with one type of activations. A value.
#pragma once

#include <string>

#include "bench/bars/figure.h"
#include "engine/floor.h"
#include "kernels/problem.h"

namespace tetrad::bars {

struct TypeTiming {
  ActivationType activations = ActivationType::kFp16;
  std::string kernel;
  std::string explanation;  // of the plan
  int sets = 0;
  int calls = 0;              // of a graph
  DeviceRates rates;          // medians
  Floor floor;                // with these
  Measured cold_us, warm_us;  // a call
  Measured share;             // of cold_us
};

}  // namespace tetrad::bars
