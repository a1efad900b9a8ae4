// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TETRAD_SEEDS=N runs another number of seeds, TETRAD_FIRST_SEED=N begins
// elsewhere, TETRAD_SEED=N replays one and tells what happened in it.
#include <cstdlib>

#include <gtest/gtest.h>

#include "engine/simulation/seeds.h"

namespace tetrad::simulation {
namespace {

// From so many on, everything must have happened.
constexpr uint64_t kEnough = 10000;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string Replay(uint64_t seed, size_t lines) {
  Coverage coverage;
  const Outcome outcome = RunSeed(seed, coverage, lines);
  std::string text = "TETRAD_SEED=" + std::to_string(seed) + " replays it; the last events:\n";
  for (const std::string& line : outcome.lines) text += line + "\n";
  return text + outcome.violation;
}

TEST(SimulationTest, EveryPromiseIsKeptAndEverythingHappens) {
  if (const uint64_t seed = FromEnvironment("TETRAD_SEED", UINT64_MAX); seed != UINT64_MAX) {
    Coverage coverage;
    EXPECT_EQ(RunSeed(seed, coverage, 0, true).violation, "");
    return;
  }
  const uint64_t count = FromEnvironment("TETRAD_SEEDS", kEnough);
  const Search search = RunSeeds(FromEnvironment("TETRAD_FIRST_SEED", 0), count);
  if (search.found) {
    FAIL() << "seed " << search.seed << ": " << search.violation << "\n"
           << (search.crashed ? "TETRAD_SEED=" + std::to_string(search.seed) + " replays it"
                              : Replay(search.seed, 60));
  }
  EXPECT_EQ(search.seeds, count);
  for (size_t i = 0; i < search.coverage.counts.size(); ++i) {
    if (std::getenv("TETRAD_COVERAGE") != nullptr) {
      std::printf("%-24s %lu\n", kSeenNames[i], search.coverage.counts[i]);
    }
    if (count < kEnough) continue;
    EXPECT_GT(search.coverage.counts[i], 0u) << kSeenNames[i] << " never happened";
  }
}

TEST(SimulationTest, ARunIsAFunctionOfItsSeed) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Coverage coverage;
    const uint64_t hash = RunSeed(seed, coverage).hash;
    ASSERT_EQ(RunSeed(seed, coverage).hash, hash) << "seed " << seed;
    ASSERT_NE(RunSeed(seed + 1, coverage).hash, hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tetrad::simulation
