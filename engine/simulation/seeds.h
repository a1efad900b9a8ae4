// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Seeds: runs worlds, one a seed, until a promise is broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/simulation/coverage.h"

namespace tetrad::simulation {

struct Outcome {
  std::string violation;  // empty: every promise was kept
  uint64_t hash = 0;      // of all that happened
  std::vector<std::string> lines;
};

// `lines`: how many of the last events to tell; `print`: each, when it happens.
Outcome RunSeed(uint64_t seed, Coverage& coverage, size_t lines = 0, bool print = false);

struct Search {
  uint64_t seeds = 0;  // run
  bool found = false;  // the last of them broke a promise, or ended the process
  bool crashed = false;
  uint64_t seed = 0;
  std::string violation;
  Coverage coverage;
};

// In a process of its own, so that even a check that ends it tells the seed.
Search RunSeeds(uint64_t first, uint64_t count);

}  // namespace tetrad::simulation
