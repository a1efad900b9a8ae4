// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What `tetradctl bench` found, as a table for people or one JSON document.
#pragma once

#include <cstdint>
#include <string>

#include "clients/cli/load_generator.h"
#include "clients/cli/output.h"

namespace tetrad::cli {

struct BenchReport {
  std::string weights, kernel;
  std::string checked;  // how an output was compared with what it must be
  bool plan = true;     // a handle, not the signature with each request
  bool capacity = false;
  int in_flight = 1;
  double flops = 0;           // of one request
  int64_t request_bytes = 0;  // operands
  int64_t reply_bytes = 0;    // output
  double floor_us = 0;
  LoadResult load;
};

void Print(const Output& output, const BenchReport& report);

}  // namespace tetrad::cli
