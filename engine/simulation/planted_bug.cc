// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The main program of a planted bug: the simulation against an engine in which
// one place was changed. Exits 0 if the simulation finds that out.
#include <cstdio>

#include "engine/simulation/seeds.h"

int main() {
  constexpr uint64_t kSeeds = 10000;
  const tetrad::simulation::Search search = tetrad::simulation::RunSeeds(0, kSeeds);
  if (!search.found) {
    std::printf("not found within %lu seeds\n", static_cast<unsigned long>(kSeeds));
    return 1;
  }
  std::printf("found %s after %lu seeds: %s\n",
              search.crashed ? "by a check that ended the process" : "by the world",
              static_cast<unsigned long>(search.seed + 1), search.violation.c_str());
  return 0;
}
